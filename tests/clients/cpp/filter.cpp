/* Sends requests through the filter of docs/c.md, which is a file of its own, with the rules that stand there. */
#include <drogon/HttpFilter.h>

#include <cstdio>

int main()
{
    if (!drogon::maker())
        return std::puts("the filter is not found"), 1;
    auto limit = drogon::maker()();
    int passed = 0, refused = 0, whole = 0;
    for (const char *user : { "ann", "ann", "ann", "bob" }) {
        auto request = std::make_shared<drogon::HttpRequest>();
        request->peer.ip = "203.0.113.7";
        request->original_path = user[0] == 'a' ? "/%6fcR" : "/ocr";
        request->all["x-user"] = user;
        limit->doFilter(
            request,
            [&](const drogon::HttpResponsePtr &response) {
                refused++;
                whole += response->status == 429 && !response->body.empty() && response->type == "text/plain; charset=utf-8" &&
                         response->all.count("RateLimit") == 1 && response->all.count("Retry-After") == 1;
            },
            [&] { passed++; });
    }
    std::printf("%d passed, %d refused, %d of them as they should be\n", passed, refused, whole);
    return passed == 3 && refused == 1 && whole == 1 ? 0 : 1;
}
