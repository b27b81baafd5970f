/* Loads the library by its SONAME, twice, as a plugin host or a foreign-function interface would. */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    for (int i = 0; i < 2; i++) {
        void *library = dlopen("libweir.so.4", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int (*abi_version)(void);
        *(void **)&abi_version = dlsym(library, "weir_abi_version");
        if (!abi_version || abi_version() != 4) {
            fprintf(stderr, "weir_abi_version is missing or not 4\n");
            return 1;
        }
        dlclose(library);
    }
    return 0;
}
