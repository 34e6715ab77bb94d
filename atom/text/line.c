/*
 * Owns what is known of keys beside a text or a chat. One idea: a key that changes what should be learned,
 * and that nothing here reads, is refused by its name. Refuses to guess what others mean: they are passed
 * over, and counted by the caller.
 */
#include "atom/text/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

atom_status text_fail_line(const char *name, uint64_t line, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return atom_fail(ATOM_E_FORMAT, "%s:%llu: %s", name, (unsigned long long)line, what);
}

bool text_line_has(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return value && !json_is_null(value);
}

/* Is there something in it? */
static bool says(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_string_length(value) || json_array_size(value) || json_object_size(value);
}

/* Tables have texts only. */
static bool is_verdict(const json_t *value)
{
    const char *text = json_string_value(value);
    return json_is_boolean(value) ||
           (text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0));
}

/* The words that say of a message that it is not learned would say it of the line. */
static atom_status refuse_flags(const json_t *root, const char *name, uint64_t line)
{
    static const char *const flags[] = {"train", "training", "loss"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const json_t *value = json_object_get(root, flags[i]);
        const char *text = json_string_value(value);
        if (json_is_false(value) || (text && strcasecmp(text, "false") == 0))
            return text_fail_line(name, line,
                                  "the whole line has a \"%s\" of false, which atom does not "
                                  "support; give its messages that key, or remove the line",
                                  flags[i]);
    }
    return ATOM_OK;
}

/* Data for DPO, KTO and the like: as ordinary chats the bad answers would be learned like good ones, or
 * what says that they are bad would be dropped. */
atom_status text_line_check(const json_t *root, const char *name, uint64_t line)
{
    static const char *const answers[] = {"chosen", "rejected"}, *const verdicts[] = {"label",
                                                                                      "kto_tag"};
    bool chat = json_object_get(root, "completion") || json_object_get(root, "messages") ||
                json_object_get(root, "conversations") || json_object_get(root, "instruction");
    for (size_t i = 0; i < 2; i++)
        if (says(root, answers[i]))
            return text_fail_line(
                name, line,
                "\"%s\" belongs to preference pairs (chosen and rejected), which "
                "atom cannot train on; write the better answer as an ordinary one, "
                "and leave out \"%s\"",
                answers[i], answers[i]);
    for (size_t i = 0; i < 2; i++)
        if (chat && is_verdict(json_object_get(root, verdicts[i])))
            return text_fail_line(
                name, line,
                "the \"%s\" says whether the answer is a good one (KTO), which "
                "atom cannot train on; keep the lines where it is true, and leave "
                "it out",
                verdicts[i]);
    return refuse_flags(root, name, line);
}

atom_status text_line_check_media(const json_t *root, const char *name, uint64_t line)
{
    static const char *const media[] = {"image", "images", "video", "videos", "audio", "audios"};
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (says(root, media[i]))
            return text_fail_line(
                name, line,
                "there is \"%s\" beside the text, but atom reads only text; remove the line",
                media[i]);
    return ATOM_OK;
}

/* Part of the question, or of the answer, under keys that this format does not have. */
static atom_status refuse_parts(const json_t *root, text_format format, const char *name,
                                uint64_t line)
{
    static const struct {
        const char *key, *instead;
        unsigned formats;
    } parts[] = {
        {"functions", "write it as \"tools\"", ~0u},
        {"system", "make it the first of the messages", 1u << TEXT_FORMAT_MESSAGES},
        {"history", "write it into the list of messages",
         1u << TEXT_FORMAT_MESSAGES | 1u << TEXT_FORMAT_SHAREGPT},
        {"context", "write it into the question",
         1u << TEXT_FORMAT_ALPACA | 1u << TEXT_FORMAT_PROMPT},
        {"input", "write it into the \"prompt\"", 1u << TEXT_FORMAT_PROMPT},
        {"response", "leave out one of \"output\" and \"response\"", 1u << TEXT_FORMAT_ALPACA},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if ((parts[i].formats >> format & 1) && says(root, parts[i].key))
            return text_fail_line(
                name, line, "there is a \"%s\" beside the chat, which would not be part of it; %s",
                parts[i].key, parts[i].instead);
    return ATOM_OK;
}

/* A system message twice: which one was meant? */
static atom_status refuse_two_systems(const json_t *root, const char *name, uint64_t line)
{
    const json_t *first = json_array_get(json_object_get(root, "conversations"), 0);
    const char *from = json_string_value(json_object_get(first, "from"));
    if (from && strcmp(from, "system") == 0 && says(root, "system"))
        return text_fail_line(name, line,
                              "there are two system messages, in \"system\" and in "
                              "conversations[0]; leave out one of them");
    return ATOM_OK;
}

atom_status text_line_check_chat(const json_t *root, text_format format, const char *name,
                                 uint64_t line)
{
    ATOM_TRY(text_line_check_media(root, name, line));
    ATOM_TRY(refuse_parts(root, format, name, line));
    return format == TEXT_FORMAT_SHAREGPT ? refuse_two_systems(root, name, line) : ATOM_OK;
}

bool text_line_reads(const char *key, text_format format)
{
    static const struct {
        const char *key;
        unsigned formats;
    } read[] = {{"messages", 1u << TEXT_FORMAT_MESSAGES},
                {"conversations", 1u << TEXT_FORMAT_SHAREGPT},
                {"system",
                 1u << TEXT_FORMAT_SHAREGPT | 1u << TEXT_FORMAT_ALPACA | 1u << TEXT_FORMAT_PROMPT},
                {"history", 1u << TEXT_FORMAT_ALPACA | 1u << TEXT_FORMAT_PROMPT},
                {"instruction", 1u << TEXT_FORMAT_ALPACA},
                {"input", 1u << TEXT_FORMAT_ALPACA},
                {"output", 1u << TEXT_FORMAT_ALPACA},
                {"prompt", 1u << TEXT_FORMAT_PROMPT},
                {"completion", 1u << TEXT_FORMAT_PROMPT},
                {"tools", ~0u},
                {"documents", ~0u},
                {"weight", ~0u},
                {"chat_template_kwargs", ~0u}};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(key, read[i].key) == 0)
            return read[i].formats >> format & 1;
    return false;
}
