/*
 * Owns what is installed beside the program: bash completion and man pages, generated from the same
 * rows as --help. Refuses hand-written extras: what a row does not say is not said here either.
 */
#include "atom/options/options_internal.h"

#include "atom/base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* How bash completes the value of one option. */
static void write_value_case(FILE *f, const opt_command *command, const opt_spec *spec)
{
    char dashed[64];
    const char *value = opt_value_name(spec);
    bool files = strstr(value, "FILE") || strstr(value, ".json") || strstr(value, ".yml");
    bool dirs = strstr(value, "DIR") != NULL;
    if (spec->type == OPT_FLAG || (!spec->choices && !files && !dirs))
        return;
    fprintf(f, "        '%s:%s'%s", command->name, opt_dashed(spec->name, dashed),
            spec->letter ? "" : ")\n");
    if (spec->letter)
        fprintf(f, "|'%s:-%c')\n", command->name, spec->letter);
    if (spec->choices) {
        fputs("            COMPREPLY=($(compgen -W '", f);
        for (uint32_t i = 0; spec->choices[i].name; i++)
            fprintf(f, "%s%s", i ? " " : "", spec->choices[i].name);
        fputs("' -- \"$cur\"))\n", f);
    }
    if (files || dirs)
        fprintf(f, "            COMPREPLY+=($(compgen -%c -- \"$cur\"))\n", files ? 'f' : 'd');
    fputs("            return ;;\n", f);
}

static void write_first_words(FILE *f, const opt_command *const *commands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = strcspn(commands[i]->name, " ");
        bool seen = false;
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = strncmp(commands[j]->name, commands[i]->name, bytes) == 0 &&
                   (commands[j]->name[bytes] == ' ' || !commands[j]->name[bytes]);
        if (!seen)
            fprintf(f, "%s%.*s", i ? " " : "", (int)bytes, commands[i]->name);
    }
}

static void write_verbs(FILE *f, const opt_command *const *commands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *space = strchr(commands[i]->name, ' ');
        if (!space)
            continue;
        fprintf(f, "        %.*s) [ \"$COMP_CWORD\" -eq 2 ] && verbs=\"$verbs %s\"",
                (int)(space - commands[i]->name), commands[i]->name, space + 1);
        fprintf(f, "\n            [ \"${COMP_WORDS[2]}\" = %s ] && cmd='%s' ;;&\n", space + 1,
                commands[i]->name);
    }
}

atom_status opt_completion_bash(const char *program, const opt_command *const *commands, uint32_t n,
                                char **text)
{
    char dashed[64];
    opt_out out;
    ATOM_TRY(opt_out_open(&out));
    FILE *f = out.file;
    fprintf(f, "# bash completion for %s; generated from its option table\n_%s()\n{\n", program,
            program);
    fputs("    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
          "    local cmd=\"${COMP_WORDS[1]}\" verbs= options= files=\n    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W '",
          f);
    write_first_words(f, commands, n);
    fputs("' -- \"$cur\"))\n        return\n    fi\n    case \"$cmd\" in\n", f);
    write_verbs(f, commands, n);
    fputs("    esac\n    if [ -n \"$verbs\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\"))\n        return\n    fi\n"
          "    case \"$cmd:${prev//_/-}\" in\n",
          f);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < commands[i]->n_specs; j++)
            write_value_case(f, commands[i], &commands[i]->specs[j]);
    }
    fputs("    esac\n    case \"$cmd\" in\n", f);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(f, "        '%s') options='--help", commands[i]->name);
        for (uint32_t j = 0; j < commands[i]->n_specs; j++)
            fprintf(f, " %s", opt_dashed(commands[i]->specs[j].name, dashed));
        fprintf(f, "'%s ;;\n", commands[i]->positional ? " files=1" : "");
    }
    fputs("    esac\n    case \"$cur\" in\n"
          "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"${cur//_/-}\")) ;;\n"
          "        *) if [ -n \"$files\" ]; then COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "           else COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); fi ;;\n"
          "    esac\n}\n",
          f);
    fprintf(f, "complete -o filenames -F _%s %s\n", program, program);
    return opt_out_close(&out, text);
}

/* roff: backslashes and leading dots or quotes escaped, '-' as a hyphen-minus. */
static void write_roff(FILE *f, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", f);
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else
            fputc(*text, f);
        start = *text == '\n';
    }
}

static void write_man_option(FILE *f, const opt_spec *spec, bool is_key)
{
    char dashed[64];
    fputs(".TP\n.B ", f);
    if (spec->letter)
        fprintf(f, "\\-%c, ", spec->letter);
    write_roff(f, is_key ? spec->name : opt_dashed(spec->name, dashed));
    if (is_key)
        fputc(':', f);
    if (spec->type != OPT_FLAG) {
        fputs(" \\fI", f);
        opt_write_value(f, spec);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    write_roff(f, spec->help ? spec->help : "");
    if (spec->fallback && spec->type != OPT_FLAG) {
        fputs(" Default: ", f);
        write_roff(f, spec->fallback);
        fputc('.', f);
    }
    if (spec->aliases) {
        fputs(" Also accepted as: ", f);
        for (uint32_t i = 0; spec->aliases[i]; i++)
            fprintf(f, "%s%s", i ? " " : "", spec->aliases[i]);
        fputc('.', f);
    }
    fputc('\n', f);
}

static void write_man_head(FILE *f, const char *program, const char *version,
                           const opt_command *command)
{
    fputs(".TH ", f);
    for (const char *c = program; *c; c++)
        fputc(toupper((unsigned char)*c), f);
    fputc('-', f);
    for (const char *c = command->name; *c; c++)
        fputc(*c == ' ' ? '-' : toupper((unsigned char)*c), f);
    fprintf(f, " 1 \"\" \"%s %s\" \"%s manual\"\n.SH NAME\n%s\\-", program, version, program,
            program);
    for (const char *c = command->name; *c; c++)
        fputs(*c == ' ' ? "\\-" : (char[]){*c, 0}, f);
    fputs(" \\- ", f);
    write_roff(f, command->summary);
    fprintf(f, "\n.SH SYNOPSIS\n.B %s %s\n%s\n[\\-\\-key value ...]\n", program, command->name,
            command->positional ? command->positional : "");
}

atom_status opt_man(const char *program, const char *version, const opt_command *command,
                    char **text)
{
    opt_out out;
    ATOM_TRY(opt_out_open(&out));
    FILE *f = out.file;
    write_man_head(f, program, version, command);
    if (command->description) {
        fputs(".SH DESCRIPTION\n", f);
        write_roff(f, command->description);
        fputc('\n', f);
    }
    if (command->n_specs)
        fputs(".SH OPTIONS\n", f);
    for (uint32_t i = 0; i < command->n_specs; i++) {
        if (command->specs[i].group)
            fprintf(f, ".SS %s\n", command->specs[i].group);
        write_man_option(f, &command->specs[i], false);
    }
    const opt_command *section = command->section;
    if (section)
        fprintf(f, ".SS %s\n", command->section_title);
    for (uint32_t i = 0; section && i < section->n_specs; i++)
        if (!(section->specs[i].flags & OPT_FILLED))
            write_man_option(f, &section->specs[i], true);
    if (command->examples) {
        fputs(".SH EXAMPLES\n.nf\n", f);
        write_roff(f, command->examples);
        fputs("\n.fi\n", f);
    }
    fputs(
        ".SH EXIT STATUS\n0 success, 1 failure, 2 usage or configuration, 3 bad input file, 4 not "
        "enough memory, disk or device, 5 training diverged, 129, 130 or 143 after a signal.\n",
        f);
    return opt_out_close(&out, text);
}
