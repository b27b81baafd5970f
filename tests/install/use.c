/* A program as a user would write it, against the installed library. Compiled as C and as C++. */
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

static const char rules[] = "rules:\n"
                            "  - id: ocr\n"
                            "    match: { event: ocr }\n"
                            "    by: [key]\n"
                            "    limits: [ \"2 per 60s\" ]\n";

int main(void)
{
    struct weir_options options;
    struct weir_error error;
    struct weir *weir;
    int allowed = 0, refused = 0;

    if (weir_abi_version() != WEIR_ABI_VERSION) {
        fprintf(stderr, "header %d, library %d\n", WEIR_ABI_VERSION, weir_abi_version());
        return 1;
    }
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.rules_text = rules;
    options.cells_keys = 1000;
    if (weir_open(&weir, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        WEIR_DETECT(weir, "ocr", "u1") {
            allowed++;
        } else {
            refused++;
        }
    }
    weir_close(weir);
    if (allowed != 2 || refused != 1) {
        fprintf(stderr, "%d allowed, %d refused; expected 2 and 1\n", allowed, refused);
        return 1;
    }
    return 0;
}
