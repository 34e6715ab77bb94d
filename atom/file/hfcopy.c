/*
 * Owns the files beside the weights that a model directory hands on to what is trained from it: its
 * tokenizer, its chat template, its settings for generation. One idea: they are copied byte for
 * byte. Refuses to judge whether they belong to the data: the caller has compared the tokenizers.
 */
#include "atom/file/hfdir.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <string.h>

enum { COPY_BYTES_MAX = 1 << 28 };

atom_status file_model_copy_one(const char *from, const char *to, const char *name)
{
    char *text = NULL, *source = atom_path_join(from, name), *target = atom_path_join(to, name);
    uint64_t bytes;
    atom_status st = ATOM_OK;
    if (!source || !target)
        st = atom_fail_memory("a path", strlen(from));
    else if (atom_path_exists(source))
        st = atom_file_read(source, COPY_BYTES_MAX, &text, &bytes);
    if (text)
        st = atom_file_write(target, text, bytes);
    atom_free(text);
    atom_free(source);
    atom_free(target);
    return st;
}

/* The template for chats with tools, which has a directory of its own. */
static atom_status copy_tool_template(const char *from, const char *to)
{
    static const char name[] = "additional_chat_templates/tool_use.jinja";
    char *source = atom_path_join(from, name),
         *dir = atom_path_join(to, "additional_chat_templates");
    atom_status st = ATOM_OK;
    if (!source || !dir)
        st = atom_fail_memory("a path", strlen(from));
    else if (atom_path_exists(source))
        st = atom_dir_make(dir);
    if (st == ATOM_OK)
        st = file_model_copy_one(from, to, name);
    atom_free(source);
    atom_free(dir);
    return st;
}

atom_status file_model_copy(const char *from, const char *to)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "generation_config.json"};
    atom_status st = ATOM_OK;
    for (size_t i = 0; st == ATOM_OK && i < sizeof names / sizeof names[0]; i++)
        st = file_model_copy_one(from, to, names[i]);
    return st == ATOM_OK ? copy_tool_template(from, to) : st;
}
