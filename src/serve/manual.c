/* Writes the options of `weir serve` for their readers, at build time and in tests:
 *
 *   manual page TEMPLATE    the manual page: TEMPLATE with the options in place of a line "@options@"
 *   manual table            the table of docs/service.md
 */
#include <ctype.h>
#include <stdio.h>

#include "serve/config.h"

/* Each sentence begins on a new line, as mdoc(7) requires. */
static void print_roff(const char *text)
{
    bool begins = true;
    for (const char *c = text; *c; c++) {
        if (begins && (*c == '.' || *c == '\''))
            fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-' && (c == text || c[-1] == ' ' || c[-1] == '-'))
            fputs("\\-", stdout);
        else
            putchar(*c);
        begins = *c == '.' && c[1] == ' ' && isupper((unsigned char)c[2]);
        if (begins) {
            putchar('\n');
            c++;
        }
    }
    putchar('\n');
}

static void print_sentence(const char *text)
{
    char whole[300];
    snprintf(whole, sizeof whole, "%c%s.", toupper((unsigned char)text[0]), text + 1);
    print_roff(whole);
}

static void print_option(const struct config_option *option)
{
    char bounds[CONFIG_ALLOWED_MAX];
    config_bounds(option, bounds);
    printf(".It Fl -%s Ar ", option->name);
    for (const char *c = option->argument; *c; c++)
        putchar(tolower((unsigned char)*c));
    putchar('\n');
    print_sentence(option->help);
    if (option->text[0])
        print_roff(option->text);
    if (option->initial) {
        fputs("Default: ", stdout);
        printf(bounds[0] ? "%s; allowed: %s.\n" : "%s.\n", option->initial, bounds);
    }
    if (option->when == CONFIG_LIVE)
        puts("A reload (SIGHUP) applies a changed value.");
}

static int print_page(const char *path)
{
    char line[1000];
    FILE *in = fopen(path, "r");
    if (!in) {
        perror(path);
        return 1;
    }
    while (fgets(line, sizeof line, in)) {
        if (strcmp(line, "@options@\n") != 0) {
            fputs(line, stdout);
            continue;
        }
        for (const struct config_option *option = config_options; option->name; option++)
            print_option(option);
    }
    fclose(in);
    return 0;
}

static void print_cell(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '|' || *c == '*')
            putchar('\\');
        putchar(*c);
    }
}

static int print_table(void)
{
    puts("| option | default | allowed | reload | |\n|---|---|---|---|---|");
    for (const struct config_option *option = config_options; option->name; option++) {
        char bounds[CONFIG_ALLOWED_MAX];
        config_bounds(option, bounds);
        printf("| `%s` ", option->name);
        printf(option->initial ? "| `%s` |" : "| %s|", option->initial ? option->initial : "");
        putchar(' ');
        print_cell(bounds[0] ? bounds : option->argument);
        printf(" | %s | ", option->when == CONFIG_LIVE ? "yes" : "");
        print_cell(option->help);
        puts(" |");
    }
    return 0;
}

int main(int argc, char **argv)
{
    int status = 2;
    if (argc == 3 && strcmp(argv[1], "page") == 0)
        status = print_page(argv[2]);
    else if (argc == 2 && strcmp(argv[1], "table") == 0)
        status = print_table();
    else
        fputs("usage: manual page TEMPLATE | manual table\n", stderr);
    return fflush(stdout) == 0 ? status : 1;
}
