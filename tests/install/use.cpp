// A program as a user would write it, against the installed weir.hpp.
#include <iostream>
#include <weir/weir.hpp>

int main()
{
    weir::options options;
    options.rules_text = "rules: [ { id: ocr, match: { event: ocr }, by: [key], limits: [ 2 per 60s ] } ]";
    options.cells_keys = 1000;
    weir::handle weir(options);
    int allowed = 0;
    for (int i = 0; i < 3; i++)
        if (weir::detect(weir, "ocr", "u1"))
            allowed++;
    if (allowed != 2)
        std::cerr << allowed << " allowed; expected 2\n";
    return allowed == 2 ? 0 : 1;
}
