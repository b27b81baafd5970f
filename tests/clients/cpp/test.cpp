/* weir.hpp against the library, by a clock of its own. Prints TAP. */
#include <weir/weir.h> /* may come first */

#include <weir/weir.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <thread>
#include <type_traits>

using std::chrono::milliseconds;

static const char rules[] = R"(
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 3, per: 1h } ]
  - id: mine
    match: { path: /mine }
    by: [user]
    limits: [ { name: minute, algorithm: fixed_window, max: 2, per: 1m } ]
    reject: { status: 420, body: "calm down", headers: { X-Reason: calm } }
  - { id: never, match: { event: never }, limits: [ { name: none, max: 0, per: 1h } ] }
  - { id: trial, match: { event: ocr }, mode: shadow, limits: [ { max: 0, per: 1h } ] }
)";

static int cases, failures;
static bool good;

static void expect(bool holds, const char *what, int line)
{
    if (!holds)
        std::printf("# line %d: %s\n", line, what);
    good = good && holds;
}
#define EXPECT(what) expect(bool(what), #what, __LINE__)

template <typename Thrown, typename Call> static std::string thrown(Call call)
{
    try {
        call();
    } catch (const Thrown &e) {
        return e.what();
    }
    return "";
}

static bool holds(const std::string &text, const char *part)
{
    return text.find(part) != text.npos;
}

static weir::options with(const char *text)
{
    weir::options options;
    options.rules_text = text;
    options.cells_keys = 1000;
    return options;
}

static const weir::clock::time_point noon{ std::chrono::hours(24 * 20000 + 12) };

/* ---- what must not compile, and what must ---- */

static_assert(!std::is_copy_constructible_v<weir::handle> && std::is_nothrow_move_constructible_v<weir::handle>, "");
static_assert(std::is_nothrow_copy_constructible_v<weir::too_frequent>, "or it could not be thrown safely");

static_assert(!std::is_default_constructible_v<weir> && !std::is_aggregate_v<weir>, "C++ makes no struct weir …");
static_assert(!std::is_destructible_v<weir>, "… deletes none …");
static_assert(!std::is_copy_assignable_v<weir> && !std::is_move_assignable_v<weir>, "… and copies none");

template <typename Handle>
constexpr bool charges = std::is_constructible_v<weir::charge, Handle, const char *, const char *>;
template <typename Handle>
constexpr bool charges_cost = std::is_constructible_v<weir::charge, Handle, const char *, const char *, unsigned>;
template <typename Handle> constexpr bool loops = std::is_constructible_v<weir::loop, Handle>;
static_assert(charges<weir::handle &> && charges_cost<const weir::handle &> && loops<const weir::handle &>, "");
static_assert(!charges<weir::handle> && !charges_cost<weir::handle> && !loops<weir::handle>, "a temporary would be gone");
static_assert(!charges<const weir::handle> && !loops<const weir::handle>, "a constant one, too");
static_assert(!std::is_copy_constructible_v<weir::charge>, "it would give back twice");

static void opens_and_fails()
{
    EXPECT(holds(thrown<weir::error>([] { weir::handle handle(with("rules: 7")); }), "rules"));
    EXPECT(thrown<weir::error>([] { weir::handle handle(weir::options{}); }) != "");
    weir::handle weir(with(rules));
    try {
        weir.set_rules("rules: [ { id: x } ]");
        EXPECT(!"bad rules were taken");
    } catch (const weir::error &e) {
        EXPECT(e.code() == WEIR_E_RULES && *e.what());
    }
    EXPECT(!weir.check("never", "u"));
    weir.set_rules("rules: []");
    EXPECT(weir.check("never", "u"));
}

static void says_what_it_found()
{
    weir::handle weir(with(rules));
    weir::shadows shadows;
    weir::request request = weir::request("ocr", "u1", 2).shadows(shadows);
    weir::verdict passed = weir.check(request, noon);
    EXPECT(passed && passed.allowed() && passed.applied() && !passed.failed() && !passed.unavailable());
    EXPECT(passed.rule() == "ocr" && passed.limit() == "hour" && passed.max() == 3 && passed.remaining() == 1);
    EXPECT(passed.status() == 0 && passed.retry_after() == milliseconds(0));
    EXPECT(passed.window() == std::chrono::hours(1) && passed.reset() == std::chrono::hours(1));
    EXPECT(passed.shadow_count() == 1 && shadows.names() == std::vector<std::string_view>{ "trial" });
    EXPECT(holds(passed.json(request), R"("shadow":["trial"])") && !holds(passed.json(), "shadow"));

    weir::usage usage;
    weir::request again = weir::request("ocr", "u1", 2).usage(usage);
    weir::verdict refused = weir.check(again, noon + std::chrono::minutes(59));
    EXPECT(!refused && refused.status() == 429 && refused.retry_after() == std::chrono::minutes(1));
    weir::header_list expected{ { "RateLimit-Policy", "\"ocr/hour\";q=3;w=3600" },
                                { "RateLimit", "\"ocr/hour\";r=1;t=60" },
                                { "Retry-After", "60" } };
    EXPECT(weir.headers(again, refused) == expected && weir.headers(refused) == expected && usage.c().count == 1);
    EXPECT(weir.headers(again, refused, WEIR_HEADERS_LEGACY).size() == 4 && weir.headers(again, refused, 0).empty());
    EXPECT(holds(refused.json(), R"("allowed":false,"status":429,"rule":"ocr","limit":"hour")"));
    EXPECT(weir.check(weir::request("never", "u"), noon).retry_after() == weir::never);

    weir::verdict none = weir.check(weir::request("other", "u"), noon);
    EXPECT(none && !none.applied() && weir.headers(none).empty());
    EXPECT(weir.check(weir::request("ocr", "u1").cost(1).peek(), noon) && weir.check(weir::request("ocr", "u1"), noon));
}

static void copies_what_is_there()
{
    weir::handle weir(with(rules));
    weir::request request = weir::request("ocr", "u1");
    weir::verdict first = weir.check(request, noon), second = first, third;
    EXPECT(third.failed() && third.status() == 503);
    third = second;
    const weir::verdict &same = third;
    third = same;
    EXPECT(third.json() == first.json() && weir.headers(third) == weir.headers(first));
    EXPECT(weir.refuse(request, third).body == weir.refuse(request, first).body);

    /* All of it, whatever fields there are. */
    weir_verdict full;
    std::memset(&full, 0x5a, sizeof full);
    EXPECT(std::memcmp(&weir::verdict(full).c(), &full, sizeof full) == 0);
}

static void guards()
{
    weir::handle weir(with(rules));
    int passed = 0;
    for (int i = 0; i < 5; i++)
        if (auto seen = weir::detect(weir, "ocr", std::string("u1")))
            passed++;
        else
            EXPECT(seen.retry_after() > milliseconds(0));
    EXPECT(passed == 3);
    EXPECT(weir::detect(weir, "ocr", "u4").rule() == "ocr"); /* a temporary will do for this */
    EXPECT(!weir::detect(weir, "ocr", "u2", 4) && weir::detect(weir, "ocr", "u2", 3));

    EXPECT(weir::require(weir, "ocr", "u3", 2).remaining() == 1);
    std::string text = thrown<weir::too_frequent>([&] { weir::require(weir, "ocr", "u3", 2); });
    EXPECT(holds(text, "limit hour of rule ocr, retry in "));
    EXPECT(holds(thrown<weir::too_frequent>([&] { weir::require(weir, "never", "u"); }), "no wait will help"));
    try {
        weir::require(weir, "ocr", "u3", 2);
    } catch (const weir::too_frequent &e) {
        EXPECT(e.verdict().rule() == "ocr" && e.verdict().remaining() == 1);
    }
    /* The guard of weir.h counts together with it. */
    WEIR_DETECT(weir.c(), "ocr", "u3") {
        passed++;
    }
    EXPECT(passed == 4 && !weir::detect(weir, "ocr", "u3"));
}

/* Each guard looks at both. "free" is an event that no rule is for; blanks that were not noticed would pass there, too. */
static void refuses_what_is_blank()
{
    weir::handle weir(with(rules));
    auto refused = [&](const char *event, const char *key) {
        std::string text = thrown<weir::error>([&] { weir::require(weir, event, key); });
        weir::charge charge(weir, event, key);
        return weir::detect(weir, event, key).failed() && weir.check(event, key).failed() && charge.failed() &&
               charge.give_back() == 0 && holds(text, "blank");
    };
    for (const char *blank : { "", " ", "\t", "\n", "\v", "\f", "\r", " \t\n\v\f\r" }) {
        EXPECT(refused("ocr", blank) && refused("free", blank));
        EXPECT(refused(blank, "u1"));
    }
    EXPECT(refused("", "") && !refused("ocr", " u1 ") && weir::detect(weir, " ocr", "u1"));
}

static void gives_back()
{
    weir::handle weir(with(rules));
    weir::receipt receipt;
    EXPECT(!receipt && receipt.text().empty());
    weir::request request = weir::request("ocr", "u1", 3).receipt(receipt);
    weir::verdict charged = weir.check(request, noon);
    EXPECT(charged && receipt && !weir.check(weir::request("ocr", "u1", 3), noon));
    EXPECT(holds(charged.json(request), ("\"receipt\":\"" + receipt.text()).c_str()));
    EXPECT(weir.refund(receipt, noon) > 0 && weir.refund(request, receipt, noon) == 0);

    EXPECT(weir.check(request, noon) && weir.refund(request, weir::receipt(receipt.text()), noon) > 0);
    EXPECT(weir.check(weir::request("ocr", "u1", 3), noon));
    EXPECT(!weir.check(request, noon) && !receipt && weir.refund(request, receipt) == 0);
    EXPECT(holds(thrown<weir::error>([&] { weir::receipt rubbish("rubbish"); }), "not a valid receipt"));
}

static std::uint64_t left(const weir::handle &weir, const char *key)
{
    return weir.check(weir::request("llm", key).peek().cost(0)).remaining();
}

static void holds_and_settles()
{
    weir::handle weir(with(R"(
rules:
  - id: llm
    match: { event: llm }
    by: [key]
    limits:
      - { name: tokens, unit: tokens, algorithm: fixed_window, max: 100, per: 24h }
      - { name: calls, algorithm: fixed_window, max: 1000, per: 24h }
)"));
    const std::vector<weir_cost> most{ weir::cost("tokens", 60) };
    auto asked = [&](const char *key) { return weir::request("llm", key).costs(most).ttl(std::chrono::hours(1)); };
    {
        weir::hold hold(weir, asked("less")), refused(weir, asked("less"));
        EXPECT(hold && !refused && refused.limit() == "tokens" && refused.settle(1) == 0 && refused.renew(milliseconds(5)) == 0);
        EXPECT(hold.renew(milliseconds(60000)) == 2 && hold.renew(milliseconds(0)) == 0 && hold.renew(milliseconds(-1)) == 0);
        EXPECT(hold.settle(1, { weir::cost("tokens", 25) }) == 2 && hold.settle(1, most) == 0 && hold.cancel() == 0);
    }
    EXPECT(left(weir, "less") == 75);
    {
        weir::hold hold(weir, asked("more"));
        EXPECT(hold.settle(1, { weir::cost("tokens", 130) }) == 2);
    }
    EXPECT(!weir::hold(weir, asked("more")) && left(weir, "more") == 0);
    {
        weir::hold first(weir, asked("moved"));
        weir::hold second(std::move(first));
        EXPECT(first.cancel() == 0 && left(weir, "moved") == 40);
        second = weir::hold(weir, asked("other")); /* ends what it had, as held */
        EXPECT(left(weir, "moved") == 40 && left(weir, "other") == 40 && second.cancel() == 2);
    }
    EXPECT(left(weir, "moved") == 40 && left(weir, "other") == 100);
    EXPECT(holds(thrown<std::runtime_error>([&] {
                     weir::hold hold(weir, asked("thrown"));
                     throw std::runtime_error(std::to_string(left(weir, "thrown")));
                 }),
                 "40"));
    EXPECT(left(weir, "thrown") == 100);
    std::string text = weir::hold(weir, asked("sent")).taken().text();
    EXPECT(left(weir, "sent") == 40 && weir.settle(weir::receipt(text), 0) == 2 && left(weir, "sent") == 100);
    EXPECT(weir::hold(weir, asked("bad").ttl(std::chrono::hours(25))).failed() && left(weir, "bad") == 100);
    /* Without a time to live it is a charge, which an exception does not cancel. */
    thrown<std::runtime_error>([&] {
        weir::hold hold(weir, asked("plain").ttl(milliseconds(0)));
        throw std::runtime_error("");
    });
    EXPECT(left(weir, "plain") == 40);
}

static void charges_afterwards()
{
    weir::handle weir(with(rules));
    weir.charge_afterwards(weir::request("ocr", "u1", 1000), noon);
    EXPECT(!weir.check(weir::request("ocr", "u1", 0), noon) && weir.check(weir::request("ocr", "u2", 1), noon));
}

static void prepared_checks()
{
    weir::handle weir(with(rules));
    auto made = weir.prepare(weir::request().event("ocr"), "key");
    weir::prepared ocr = std::move(made);
    for (int i = 0; i < 3; i++) {
        auto plain = weir.check(weir::request("ocr", "u1", 1), noon), same = ocr.check("u2", 1, noon);
        EXPECT(plain.allowed() == same.allowed() && plain.remaining() == same.remaining() && plain.rule() == same.rule());
    }
    EXPECT(thrown<weir::error>([&] { weir.prepare(weir::request().event("ocr"), "ip"); }) ==
           "only `key` or `user` can vary");
}

static void gives_back_what_an_exception_leaves()
{
    weir::handle weir(with(rules));
    for (int i = 0; i < 5; i++)
        EXPECT(thrown<std::runtime_error>([&] {
                   if (weir::charge charge{ weir, "ocr", std::string("u1"), 3 })
                       throw std::runtime_error("no image");
               }) == "no image");
    {
        weir::charge charge(weir, "ocr", "u1", 2);
        EXPECT(charge && charge.remaining() == 1);
    }
    {
        weir::charge charge(weir, "ocr", "u1");
        EXPECT(charge && charge.remaining() == 0 && charge.give_back() > 0 && charge.give_back() == 0);
    }
    EXPECT(weir::detect(weir, "ocr", "u1") && !weir::detect(weir, "ocr", "u1"));
    weir::charge refused(weir, "ocr", "u1");
    EXPECT(!refused && refused.give_back() == 0);
}

static void asks_and_tells_its_functions()
{
    weir::options options = with(rules);
    options.user_id = [](const weir_request &request) { return *static_cast<std::string *>(request.context); };
    options.refuse = [](const weir::request &request, const weir::verdict &verdict, weir::refusal &refusal) {
        refusal.body += " " + std::string(weir::view(request.c().path)) + " " + std::string(verdict.rule());
    };
    weir::handle opened(options), weir(std::move(opened)); /* the functions move along */
    std::string ann = "ann", bob(600, 'b');
    auto ask = [&](std::string &user) { return weir::request().path("/mine").context(&user); };
    EXPECT(weir.check(ask(ann), noon) && weir.check(ask(ann), noon) && weir.check(ask(bob), noon));
    weir::verdict refused = weir.check(ask(ann), noon);
    EXPECT(!refused && weir.check(ask(ann).user("carl"), noon));

    weir::refusal refusal = weir.refuse(ask(ann), refused);
    EXPECT(refusal.status == 420 && refusal.body == "calm down /mine mine" && holds(refusal.content_type, "text/plain"));
    EXPECT(refusal.headers.size() == 4 && refusal.headers[0].first == "X-Reason" && refusal.headers[3].second == "60");

    weir.reset("mine", { "ann" });
    EXPECT(weir.check(ask(ann), noon));
    EXPECT(thrown<weir::error>([&] { weir.reset("nobody", {}); }) != "");
}

static void knows_headers_and_addresses()
{
    weir::options options = with("rules: [ { id: a, by: [ip], limits: [ 1 per 1h ] } ]");
    options.trusted_proxies = "192.0.2.0/24";
    weir::handle weir(options);
    auto from = [&](std::string_view peer, std::string_view client) {
        std::vector<weir_header> headers{ weir::header("X-Forwarded-For", client) };
        return weir.check(weir::request().method("GET").host("example.com").path("/").peer(peer).headers(headers), noon);
    };
    EXPECT(from("192.0.2.1", "203.0.113.1") && from("192.0.2.1", "203.0.113.2") && !from("192.0.2.2", "203.0.113.1"));
    EXPECT(from("198.51.100.1", "203.0.113.3") && !from("198.51.100.1", "203.0.113.4"));
}

static void decides_many()
{
    weir::handle weir(with(rules));
    std::vector<weir::request> requests;
    for (int i = 0; i < 40; i++)
        requests.emplace_back("ocr", i % 2 ? "odd" : "even");
    std::vector<weir::verdict> verdicts = weir.check(requests, noon);
    EXPECT(verdicts.size() == 40 && weir.check(std::vector<weir::request>{}).empty());
    for (int i = 0; i < 40; i++)
        EXPECT(verdicts[i].allowed() == (i < 6) && verdicts[i].rule() == "ocr" && verdicts[i].shadow_count() == 1);
}

static void decides_in_a_loop(const char *store)
{
    weir::options options = with(rules);
    options.counters = store;
    options.store_deadline = std::chrono::seconds(10);
    weir::handle weir(options);
    weir::loop opened(weir), loop(std::move(opened));
    int passed = 0, told = 0;
    for (int i = 0; i < 5; i++)
        loop.check(weir::request("ocr", "u1"), [&](const weir::verdict &v) { told++, passed += v.allowed(); });
    EXPECT(told == 0); /* the store is asked, and nobody waits */
    loop.flush();
    for (pollfd ready{ loop.fd(), POLLIN, 0 }; told < 5 && poll(&ready, 1, 10000) == 1;)
        loop.run();
    EXPECT(told == 5 && passed == 3 && !weir.check("ocr", "u1"));
    loop.check(weir::request("ocr", "u2"), [&](const weir::verdict &) { told++; });
    {
        weir::loop ends(std::move(loop)); /* what still waits is decided */
    }
    EXPECT(told == 6);
}

static void says_that_the_store_is_away()
{
    weir::options options = with("rules: [ { id: a, limits: [ 1 per 1h ], on_store_failure: deny } ]");
    options.counters = "redis://127.0.0.1:1"; /* nobody is there */
    std::atomic<int> down{ 0 };
    options.on_store = [&](weir_store_event event, std::string_view text) {
        down += event == WEIR_STORE_DOWN && !text.empty();
    };
    {
        weir::handle weir(options);
        EXPECT(weir.check(weir::request()).unavailable());
        EXPECT(holds(thrown<weir::too_frequent>([&] { weir::require(weir, "e", "k"); }), "unavailable"));
    }
    EXPECT(down == 1);
}

static void takes_new_rules(const std::string &folder)
{
    std::string file = folder + "/rules.yaml";
    int written = 0;
    auto write = [&](const char *text) {
        std::ofstream(file, std::ios::trunc) << text;
        /* A file that was written this moment may be half of one, and is left alone for a while. */
        auto now = std::filesystem::file_time_type::clock::now();
        std::filesystem::last_write_time(file, now - std::chrono::hours(1) + std::chrono::seconds(written++));
    };
    std::vector<int> told;
    weir::options options;
    options.rules_file = file;
    options.cells_file = folder + "/cells";
    options.cells_keys = 1000;
    options.on_rules = [&](const weir_error &error) { told.push_back(error.code); };
    write("rules: []");
    weir::handle weir(options);
    EXPECT(!weir.poll() && weir.check("never", "u"));
    write(rules);
    EXPECT(weir.poll() && !weir.check("never", "u"));
    write("rules: 7 # bad");
    EXPECT(thrown<weir::error>([&] { weir.poll(); }) != "" && !weir.poll() && !weir.check("never", "u"));
    EXPECT((told == std::vector<int>{ WEIR_OK, WEIR_E_RULES }));

    /* A second handle on the same file counts along; assigning closes what was there. */
    weir::options beside = with(rules);
    beside.cells_file = options.cells_file;
    weir::handle other(beside);
    EXPECT(weir.check(weir::request("ocr", "u1", 2), noon) && !other.check(weir::request("ocr", "u1", 2), noon));
    other = std::move(weir);
    EXPECT(other.check(weir::request("ocr", "u1"), noon) && !other.check(weir::request("ocr", "u1"), noon));
}

static void counts_for_many_threads()
{
    weir::handle weir(
        with("rules: [ { id: a, by: [key], limits: [ { algorithm: fixed_window, max: 1000, per: 24h } ] } ]"));
    std::atomic<int> passed{ 0 }, thrown_back{ 0 };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 500; i++)
                try {
                    if (weir::charge charge{ weir, "e", "k" }) {
                        if (i % 5 == 0)
                            throw thrown_back++;
                        passed++;
                    }
                } catch (int) {
                }
        });
    for (std::thread &thread : threads)
        thread.join();
    while (weir::detect(weir, "e", "k"))
        passed++;
    EXPECT(passed == 1000 && thrown_back > 0);
}

static void run(const char *name, const std::function<void()> &test)
{
    good = true;
    test();
    failures += !good;
    std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++cases, name);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FOLDER redis://HOST:PORT\n", argv[0]);
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    run("opens, and says why it does not", opens_and_fails);
    run("a verdict says what was found", says_what_it_found);
    run("a copy is what was copied", copies_what_is_there);
    run("detect and require guard", guards);
    run("what is blank is refused", refuses_what_is_blank);
    run("refund gives back", gives_back);
    run("a hold is settled, cancelled, moved", holds_and_settles);
    run("costs that are known only afterwards", charges_afterwards);
    run("prepared checks", prepared_checks);
    run("a charge is given back when an exception leaves", gives_back_what_an_exception_leaves);
    run("its functions are asked and told", asks_and_tells_its_functions);
    run("headers and addresses", knows_headers_and_addresses);
    run("many at once", decides_many);
    run("in an event loop", [&] { decides_in_a_loop(argv[2]); });
    run("a store that is away", says_that_the_store_is_away);
    run("new rules while it runs", [&] { takes_new_rules(argv[1]); });
    run("many threads", counts_for_many_threads);
    std::printf("1..%d\n", cases);
    return failures > 0;
}
