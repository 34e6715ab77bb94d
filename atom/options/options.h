/*
 * Options of a subcommand, from one table: parsing of command line and YAML, --help, the man page,
 * shell completion and the printed configuration all read the same rows. A row says how one field
 * of the caller's plain struct is spelled, checked and explained.
 *
 *     typedef struct eval_values { char *model; int64_t sequence_len; bool json; } eval_values;
 *     static const opt_spec specs[] = {
 *         {.name = "model", .type = OPT_TEXT, .offset = offsetof(eval_values, model),
 *          .value = "DIR", .flags = OPT_REQUIRED, .help = "Model directory to evaluate."},
 *         ...
 *     };
 *     static const opt_command command = {
 *         .name = "eval", .summary = "...", OPT_TABLE(specs, eval_values)};
 *
 *     eval_values v;
 *     opt_parsed parsed;
 *     ATOM_TRY(opt_parse(&command, argc, argv, &v, &parsed));
 *     ... parsed.help ...
 *     opt_free(&command, &v);
 *
 * Spelling: a YAML key is `device_memory`; the option is --device-memory or --device_memory, with
 * `--key value` or `--key=value`. Later settings win: defaults < file < command line.
 * Source: docs/design/files.md#options.
 *
 * Thread: no shared state; one parse per thread at a time. Errors: ATOM_E_USAGE with file:line:col
 * for YAML or the option's name, and a suggestion for words that are nearly right; ATOM_E_RESOURCE.
 */
#ifndef ATOM_OPTIONS_OPTIONS_H
#define ATOM_OPTIONS_OPTIONS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a value is, and what the field at `offset` must be. */
typedef enum opt_type {
    OPT_FLAG,   /* bool: --json, --json=false, --no-json; true/false/yes/no/on/off */
    OPT_INT,    /* int64_t */
    OPT_NUMBER, /* double, finite */
    OPT_SIZE,   /* uint64_t bytes: "8GiB", "2GB" */
    OPT_RATE,   /* uint64_t bytes per second: "16GB", "16GB/s" */
    OPT_TEXT,   /* char *, owned by the values; NULL when there is no default */
    OPT_CHOICE, /* int32_t: the value of one of `choices` */
    OPT_LIST,   /* opt_list: --input a b c, repeated options add up; a YAML sequence or scalar */
} opt_type;

typedef struct opt_list {
    char **items; /* owned */
    uint32_t n;
} opt_list;

/* A word and what the field becomes; a table of them ends with a row of no name. */
typedef struct opt_choice {
    const char *name;
    int32_t value;
} opt_choice;

/* flags */
enum {
    OPT_REQUIRED = 1,  /* must be set by file or command line */
    OPT_AUTO = 2,      /* the word "auto" is a value: -1 for INT and NUMBER, 0 for SIZE and RATE */
    OPT_ABOVE_MIN = 4, /* the range excludes min */
    OPT_BELOW_MAX = 8, /* the range excludes max */
    OPT_CLI_ONLY = 16, /* not a key of configuration files */
    OPT_NO_PRINT = 32, /* left out of opt_print (where the value would mislead a later run) */
    OPT_SHARED = 64,   /* others may decide it: opt_read_foreign obeys these rows, and no others */
    OPT_COMMAS = 128,  /* TEXT: several things with commas between them */
    OPT_FILLED = 256,  /* the program sets it, nobody else: not in help */
};

typedef struct opt_spec {
    const char *name; /* "device_memory" */
    opt_type type;
    size_t offset;              /* of the field in the values struct */
    const char *fallback;       /* default, as text; NULL: 0, false, NULL, empty */
    const char *value;          /* the value's name in help: "DIR"; NULL: after the type */
    const char *help;           /* sentences */
    const char *group;          /* starts a section of the help; NULL: the same as before */
    const opt_choice *choices;  /* CHOICE: all values. TEXT: mere suggestions */
    const char *const *aliases; /* NULL-terminated names that other trainers use; NULL: none */
    double min, max;            /* INT, NUMBER, SIZE, RATE; no range when both are 0 */
    unsigned flags;
    char letter; /* "-o"; 0: none */
} opt_spec;

enum {
    OPT_SPECS_MAX = 96,
    OPT_SECTIONS_MAX = 4,
    OPT_POSITIONAL_MAX = 64,
    OPT_FILE_BYTES_MAX = 1 << 20,
    OPT_CHOICES_MAX = 16
};

typedef struct opt_command {
    const char *name;        /* "train", "data prepare" */
    const char *summary;     /* one line, no dot */
    const char *description; /* paragraphs for --help and the man page; NULL: none */
    const char *examples;    /* "# what\natom ...\n" lines; NULL: none */
    const char *positional;  /* "[CONFIG.yml]", "FILE..."; NULL: none are accepted */
    uint32_t positional_min, positional_max;
    bool config_file; /* the first positional is a YAML (or JSON) file of these options */
    bool shared;      /* all rows are OPT_SHARED */
    const opt_spec *specs;
    uint32_t n_specs;
    size_t values_bytes;
    /* Keys of a section of its configuration file, which help lists too, and their heading; NULL: none. */
    const struct opt_command *section;
    const char *section_title;
} opt_command;

#define OPT_TABLE(table, values_type)                                                              \
    .specs = (table), .n_specs = (uint32_t)(sizeof(table) / sizeof((table)[0])),                   \
    .values_bytes = sizeof(values_type)

typedef enum opt_origin {
    OPT_FROM_DEFAULT,
    OPT_FROM_FILE,
    OPT_FROM_COMMAND_LINE,
    OPT_FROM_PRESET /* a default that depends on another option; set by the command */
} opt_origin;

typedef struct opt_parsed {
    opt_origin origin[OPT_SPECS_MAX];           /* by row */
    const char *positional[OPT_POSITIONAL_MAX]; /* borrowed from argv */
    uint32_t n_positional;
    bool help; /* --help or -h was given; nothing else was checked */
} opt_parsed;

/*
 * Sets defaults, reads the configuration file if the command takes one and it is named, then the
 * command line. argv holds the words after the command's name, argc of them.
 * values need no initialisation; on failure they are freed and zeroed. Free with opt_free.
 */
ATOM_MUST atom_status opt_parse(const opt_command *command, int argc, char **argv, void *values,
                                opt_parsed *parsed);
/* Frees texts and lists and zeroes the struct. Accepts a zeroed struct. */
void opt_free(const opt_command *command, void *values);

/* The pieces of opt_parse, for tests and other callers. */
ATOM_MUST atom_status opt_defaults(const opt_command *command, void *values, opt_parsed *parsed);
/* YAML, strict: one mapping of known keys to scalars (sequences for LIST); no duplicates, anchors,
 * aliases or tags; at most OPT_FILE_BYTES_MAX. */
ATOM_MUST atom_status opt_read_file(const opt_command *command, const char *path, void *values,
                                    opt_parsed *parsed);
/* The same for text in memory; `path` is for messages. */
ATOM_MUST atom_status opt_read_text(const opt_command *command, const char *path, const char *text,
                                    size_t bytes, void *values, opt_parsed *parsed);
/* The same for a text that is read once more later: it says nothing about names of other trainers yet. */
ATOM_MUST atom_status opt_peek_text(const opt_command *command, const char *path, const char *text,
                                    size_t bytes, void *values, opt_parsed *parsed);
/*
 * The same for a text that somebody else wrote, of whom nothing is believed: only rows that are
 * OPT_SHARED are obeyed, any other key ends the reading. Whatever is wrong with the text is
 * ATOM_E_FORMAT; `values` may hold some of it then.
 */
ATOM_MUST atom_status opt_read_foreign(const opt_command *command, const char *path,
                                       const char *text, size_t bytes, void *values,
                                       opt_parsed *parsed);
/* May somebody else decide this row? */
bool opt_is_shared(const opt_command *command, uint32_t row);
/* The text of a file of this kind, freed with atom_free; missing: what is said where there is none. */
ATOM_MUST atom_status opt_file_text(const char *path, const char *missing, char **text,
                                    size_t *bytes);

/*
 * A YAML file that has lists beside its keys, as strict as the others. Keys of the mapping are rows of
 * `top`, or name a section; a section is a list of mappings, each of them a struct of its own.
 */
typedef struct opt_section {
    const opt_command *table;   /* of its items; the name is the section's key */
    size_t items, count;        /* offsets in top's values: of a pointer to them, of a uint32_t */
    size_t line;                /* offset in an item of its line (uint32_t); 0: it has none */
    uint32_t most;              /* items */
    const char *too_many;       /* "800 (hosts; there may be) 512" */
    const char *begins, *needs; /* ends of messages about an item; NULL: nothing more */
} opt_section;
typedef struct opt_document {
    const opt_command *top;
    const opt_section *sections;
    uint32_t n_sections;
    const char *what; /* "a list of pools" */
    const char *help; /* where keys are explained; NULL: a message lists them */
} opt_document;
/* values need no initialisation; an empty text leaves defaults. On failure they are freed and zeroed. */
ATOM_MUST atom_status opt_read_document(const opt_document *document, const char *path,
                                        const char *text, size_t bytes, void *values);
/* Frees items, texts and lists and zeroes the struct. */
void opt_document_free(const opt_document *document, void *values);

/* One value from text: what the file reader and the command line use. LIST: adds one item. */
ATOM_MUST atom_status opt_set(const opt_command *command, uint32_t row, const char *text,
                              void *values);
/* Row of a key by name or alias, '-' and '_' alike; -1 if there is none. */
int32_t opt_find(const opt_command *command, const char *name);
/* The word of a value, which must be in the table. */
const char *opt_choice_name(const opt_choice *choices, int32_t value);
/* Was it set by file or command line? `name` must be a row's name. */
bool opt_given(const opt_command *command, const opt_parsed *parsed, const char *name);

/*
 * Finds the command that argv[0..] (after the program's name) begins with, two words first. *used
 * is how many words it took. ATOM_E_USAGE with a suggestion otherwise.
 */
ATOM_MUST atom_status opt_find_command(const opt_command *const *commands, uint32_t n, int argc,
                                       char **argv, const opt_command **out, int *used);

/* Texts, free with atom_free (options_help.c). `program` is "atom". */
ATOM_MUST atom_status opt_help(const char *program, const opt_command *command, char **text);
/* The list of commands with their summaries. */
ATOM_MUST atom_status opt_help_all(const char *program, const char *tagline,
                                   const opt_command *const *commands, uint32_t n, char **text);
/* The values as a YAML file that gives them back; with_origin adds "# default", "# file", ... */
ATOM_MUST atom_status opt_print(const opt_command *command, const void *values,
                                const opt_parsed *parsed, bool with_origin, char **text);
/* The values as one JSON object (numbers, booleans, texts). */
ATOM_MUST atom_status opt_print_json(const opt_command *command, const void *values, char **text);
ATOM_MUST atom_status opt_completion_bash(const char *program, const opt_command *const *commands,
                                          uint32_t n, char **text);
/* roff for PROGRAM-COMMAND.1. */
ATOM_MUST atom_status opt_man(const char *program, const char *version, const opt_command *command,
                              char **text);

#endif
