/* weir for C++17: what weir.h has, with handles that close themselves, values instead of out parameters, and std::chrono.
 *
 *     #include <iostream>
 *     #include <weir/weir.hpp>
 *
 *     int main()
 *     try {
 *         weir::options options;
 *         options.rules_file = "rules.yaml";
 *         weir::handle weir(options);
 *
 *         // The guard, in front of something costly.
 *         if (auto seen = weir::detect(weir, "ocr", "ann"))
 *             std::cout << "submitted, " << seen.remaining() << " left\n";
 *         else
 *             std::cout << "too frequent, retry in " << seen.retry_after().count() << " ms\n";
 *
 *         // The same as an exception, weir::too_frequent.
 *         weir::require(weir, "ocr", "ann");
 *
 *         // What is charged here is given back if an exception leaves the braces.
 *         if (weir::charge charge{ weir, "ocr", "ann" })
 *             std::cout << "submitted again\n";
 *
 *         // Any request. Standard headers for the answer, and the refusal as the rules want it.
 *         auto request = weir::request().method("GET").path("/notes?page=2").ip("203.0.113.7").user("ann");
 *         auto verdict = weir.check(request);
 *         for (auto &[name, value] : verdict.headers())
 *             std::cout << name << ": " << value << "\n";
 *         if (!verdict)
 *             std::cout << weir.refuse(request, verdict).body;
 *     } catch (const std::runtime_error &e) { // weir::error, weir::too_frequent
 *         std::cerr << e.what() << "\n";
 *         return 1;
 *     }
 *
 * Deciding a request throws nothing. It takes memory from the heap only in the first decisions of a thread, where more than
 * 32 limits or 64 rules apply to the request, with counters in a store, and if options.user_id does; where there is no
 * memory, the request is refused, as failed(). Opening, new rules and what makes strings or lists may throw.
 *
 * A handle may be used by any number of threads at once. weir.h says what the words mean, and has what is not here:
 * handle.c() is for its functions. Link with `pkg-config --cflags --libs weir`. */
#ifndef WEIR_HPP
#define WEIR_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weir/weir.h>

/* A struct, not a namespace: C++ allows no namespace beside the `struct weir` of weir.h. To the library a `struct weir *`
 * is what it always was; nobody makes or looks into one here. */
struct weir {
    explicit weir() = delete; /* explicit: or C++17 would still make one of {} */
    weir(const weir &) = delete;
    weir &operator=(const weir &) = delete;
    ~weir() = delete; /* handle.c() is no pointer for delete or std::unique_ptr */
    class handle;

    using clock = std::chrono::system_clock;
    using milliseconds = std::chrono::milliseconds;
    using header_list = std::vector<std::pair<std::string, std::string>>;

    /* reset(), retry_after(): no wait will help. */
    static constexpr milliseconds never{ WEIR_NEVER };

    static std::string_view view(struct weir_str s) noexcept { return { s.ptr, s.len }; }

    static weir_header header(std::string_view name, std::string_view value) noexcept { return { str(name), str(value) }; }

    /* What failed was not a decision. */
    class error : public std::runtime_error {
    public:
        error(weir_code code, const std::string &text) : std::runtime_error(text), code_(code) {}

        explicit error(const weir_error &e) : error(e.code, e.text) {}

        weir_code code() const noexcept { return code_; }

    private:
        weir_code code_;
    };

    /* ---- what is asked about ---- */

    /* Leave out what there is none of. It keeps views: what they show has to stay while the request is used. */
    class request {
    public:
        request() noexcept { c_.cost = 1; }

        request(std::string_view event, std::string_view key, std::uint32_t cost = 1) noexcept
        {
            c_.event = str(event);
            c_.key = str(key);
            c_.cost = cost;
        }

        request &method(std::string_view s) noexcept { return set(c_.method, str(s)); }
        request &path(std::string_view s) noexcept { return set(c_.path, str(s)); }
        request &host(std::string_view s) noexcept { return set(c_.host, str(s)); }
        request &ip(std::string_view s) noexcept { return set(c_.ip, str(s)); }
        request &peer(std::string_view s) noexcept { return set(c_.peer, str(s)); }
        request &user(std::string_view s) noexcept { return set(c_.user, str(s)); }
        request &event(std::string_view s) noexcept { return set(c_.event, str(s)); }
        request &key(std::string_view s) noexcept { return set(c_.key, str(s)); }

        /* Made by weir::header. */
        request &headers(const std::vector<weir_header> &all) noexcept
        {
            c_.headers = all.data();
            c_.header_count = all.size();
            return *this;
        }
        request &headers(std::vector<weir_header> &&) = delete; /* they would be gone */

        /* 1 unless said otherwise; 0 looks without charging. */
        request &cost(std::uint32_t n) noexcept { return set(c_.cost, n); }
        request &peek(bool yes = true) noexcept { return set(c_.peek, yes); }
        request &brief(bool yes = true) noexcept { return set(c_.brief, yes); }
        request &refundable(bool yes = true) noexcept { return set(c_.refundable, yes); }

        /* For options.user_id and options.refuse. */
        request &context(void *data) noexcept { return set(c_.context, data); }

        const weir_request &c() const noexcept { return c_; }

    private:
        template <typename T> request &set(T &field, T value) noexcept
        {
            field = value;
            return *this;
        }

        weir_request c_{};
    };

    /* ---- what came of it ---- */

    /* A value. Its room is 2 KB, most of it for lists that are short or empty: copies take only what is there. */
    class verdict {
    public:
        /* Refused, since nobody has judged. */
        verdict() noexcept
        {
            auto to = reinterpret_cast<char *>(&c_);
            each_part(0, 0, [=](std::size_t at, std::size_t len) { std::memset(to + at, 0, len); });
            c_.status = 503;
        }

        explicit verdict(const weir_verdict &from) noexcept { copy(from); }

        verdict(const verdict &from) noexcept { copy(from.c_); }

        verdict &operator=(const verdict &from) noexcept
        {
            if (this != &from)
                copy(from.c_);
            return *this;
        }

        explicit operator bool() const noexcept { return c_.allowed; }
        bool allowed() const noexcept { return c_.allowed; }

        /* false: no rule applies, and what follows from rule() to window() says nothing. */
        bool applied() const noexcept { return c_.applied; }

        /* Refused because the store does not answer, not for being too frequent. */
        bool unavailable() const noexcept { return c_.unavailable; }

        /* Refused by no rule: it could not be judged, for a blank event or key, for want of memory, or because it repeats a
         * header with different values (status() is 400). */
        bool failed() const noexcept { return !c_.allowed && !c_.applied; }

        /* HTTP status of the refusal, 0 when allowed. */
        int status() const noexcept { return c_.status; }

        /* Views into the verdict, gone with it: `auto rule = weir::detect(…).rule();` has nothing to show. Keep the
         * verdict, or make a std::string of it. */
        std::string_view rule() const noexcept { return c_.rule; }
        std::string_view limit() const noexcept { return c_.limit; }
        std::uint32_t max() const noexcept { return c_.max; }
        std::uint32_t remaining() const noexcept { return c_.remaining; }

        /* Until the limit is as if unused; or weir::never. */
        milliseconds reset() const noexcept { return milliseconds(c_.reset_ms); }

        /* 0 when allowed; weir::never; or the wait after which this request would pass. */
        milliseconds retry_after() const noexcept { return milliseconds(c_.retry_after_ms); }
        milliseconds window() const noexcept { return milliseconds(c_.window_ms); }

        /* Shadow rules that would have refused; views, as rule() is one. */
        std::vector<std::string_view> shadows() const { return { c_.shadow, c_.shadow + shadow_count(c_) }; }

        /* RateLimit-Policy, RateLimit and, when refused, Retry-After; see enum weir_header_style. */
        header_list headers(unsigned style = WEIR_HEADERS_STANDARD) const
        {
            struct weir_headers all;
            weir_headers(&c_, style, &all);
            return list(all.header, all.count);
        }

        /* One line, without a line end. */
        std::string json() const
        {
            return written([this](char *buf, std::size_t cap) { return weir_verdict_json(&c_, buf, cap); });
        }

        /* To be sent elsewhere, for handle.refund; empty if nothing can be given back. */
        std::string receipt() const
        {
            if (c_.receipt.count == 0)
                return {};
            return written([this](char *buf, std::size_t cap) { return weir_receipt_text(&c_.receipt, buf, cap); });
        }

        const weir_verdict &c() const noexcept { return c_; }

    private:
        friend class handle;

        verdict(weir *weir, const request &r, std::int64_t now_us) noexcept { weir_check(weir, &r.c(), now_us, &c_); }

        static std::size_t shadow_count(const weir_verdict &v) noexcept
        {
            return std::min<std::size_t>(v.shadow_count, WEIR_SHADOW_MAX);
        }

        /* Calls part(at, len) for all bytes of a weir_verdict but those of its lists that are not in use. */
        template <typename Part> static void each_part(std::size_t shadows, std::size_t charged, Part part) noexcept
        {
            constexpr std::size_t shadow_at = offsetof(weir_verdict, shadow);
            constexpr std::size_t shadow_end = shadow_at + sizeof(weir_verdict::shadow);
            constexpr std::size_t charged_at = offsetof(weir_verdict, receipt) + offsetof(weir_receipt, charged);
            constexpr std::size_t charged_end = charged_at + sizeof(weir_receipt::charged);
            part(0, shadow_at + shadows * sizeof *weir_verdict::shadow);
            part(shadow_end, charged_at + charged * sizeof *weir_receipt::charged - shadow_end);
            part(charged_end, sizeof(weir_verdict) - charged_end);
        }

        void copy(const weir_verdict &from) noexcept
        {
            auto to = reinterpret_cast<char *>(&c_);
            auto source = reinterpret_cast<const char *>(&from);
            each_part(shadow_count(from), std::min<std::size_t>(from.receipt.count, WEIR_RECEIPT_LIMITS),
                      [=](std::size_t at, std::size_t len) { std::memcpy(to + at, source + at, len); });
        }

        weir_verdict c_;
    };

    /* What weir::require throws. */
    class too_frequent : public std::runtime_error {
    public:
        explicit too_frequent(const weir::verdict &v) : std::runtime_error(text(v)), verdict_(v) {}

        const weir::verdict &verdict() const noexcept { return verdict_; }

    private:
        static std::string text(const weir::verdict &v)
        {
            std::string by = " by limit " + std::string(v.limit()) + " of rule " + std::string(v.rule());
            if (v.unavailable())
                return "refused" + by + ": its counters cannot be reached";
            if (v.retry_after() == never)
                return "refused" + by + ": no wait will help";
            return "too frequent: refused" + by + ", retry in " + std::to_string(v.retry_after().count()) + " ms";
        }

        weir::verdict verdict_;
    };

    /* A refusal as HTTP. */
    struct refusal {
        int status = 429;
        std::string body;
        std::string content_type;
        header_list headers; /* the rule's own and the standard ones */
    };

    /* ---- open ---- */

    /* As struct weir_options of weir.h says of each. Functions live as long as the handle and are called by any of its
     * threads; but for `refuse` they must not throw, which would end the program. */
    struct options {
        std::string rules_file;
        std::string rules_text; /* instead of a file */
        std::string cells_file;
        std::uint64_t cells_keys = 0;
        std::uint64_t cells_bytes = 0;
        void *cells_memory = nullptr;
        std::size_t cells_memory_bytes = 0;
        milliseconds watch{ 0 };
        std::optional<std::string> trusted_proxies;
        std::string counters;
        milliseconds store_deadline{ 0 };
        std::uint32_t store_hosts = 0;
        bool never_wait = false;

        /* The user of a request that names none; "" if there is none. Asked only if a rule wants the user. */
        std::function<std::string(const weir_request &)> user_id;
        /* Changes what handle.refuse gives. */
        std::function<void(const weir::request &, const weir::verdict &, refusal &)> refuse;
        /* Told of every change of the rules file: taken over (code 0), or bad, and why. */
        std::function<void(const weir_error &)> on_rules;
        /* Told of each change of the store that `counters` names. */
        std::function<void(weir_store_event, std::string_view)> on_store;
    };

    /* ---- decide ---- */

    /* Moved, not copied. One that was moved from can be assigned to, and no more. */
    class handle {
    public:
        /* Throws weir::error. */
        explicit handle(options from) : state_(new state{ std::move(from), nullptr })
        {
            weir_options c = c_options(state_->with);
            weir_error e;
            if (weir_open(&state_->weir, &c, &e) < 0)
                throw error(e);
        }

        verdict check(const request &r, clock::time_point now = clock::now()) const noexcept
        {
            return verdict(c(), r, us(now));
        }

        /* A blank event or key is refused, as failed(): no rule could count it. */
        verdict check(std::string_view event, std::string_view key, std::uint32_t cost = 1) const noexcept
        {
            return blank(event) || blank(key) ? verdict() : check(request(event, key, cost));
        }

        /* Many, each decided on its own, in order. Faster than one by one: their cache misses overlap. */
        std::vector<verdict> check(const std::vector<request> &all, clock::time_point now = clock::now()) const
        {
            static_assert(sizeof(request) == sizeof(weir_request) && sizeof(verdict) == sizeof(weir_verdict),
                          "an array of the one is an array of the other");
            std::vector<verdict> found(all.size());
            weir_check_batch(c(), reinterpret_cast<const weir_request *>(all.data()), all.size(), us(now),
                             reinterpret_cast<weir_verdict *>(found.data()));
            return found;
        }

        /* Gives back what a `refundable` request was charged. Returns to how many limits; see weir_refund. */
        int refund(const request &r, const verdict &v, clock::time_point now = clock::now()) const noexcept
        {
            return v.c().receipt.count ? std::max(weir_refund(c(), &r.c(), &v.c().receipt, us(now)), 0) : 0;
        }

        /* The same by the text of a receipt. Throws weir::error if it is none. */
        int refund(const request &r, std::string_view receipt, clock::time_point now = clock::now()) const
        {
            weir_receipt read;
            if (weir_receipt_read(str(receipt), &read) < 0)
                throw error(WEIR_E_INVALID, "this is no receipt: give the text of verdict.receipt() as it was");
            return std::max(weir_refund(c(), &r.c(), &read, us(now)), 0);
        }

        /* The refusal as the rule, the settings or options.refuse want it. */
        refusal refuse(const request &r, const verdict &v, unsigned style = WEIR_HEADERS_STANDARD) const
        {
            weir_refusal from;
            if (weir_refuse_as(c(), &r.c(), &v.c(), style, &from) < 0)
                throw std::bad_alloc();
            refusal to{ from.status, std::string(view(from.body)), std::string(view(from.content_type)),
                        list(from.headers, from.header_count) };
            if (state_->with.refuse)
                state_->with.refuse(r, v, to);
            return to;
        }

        /* Replaces the rules; what was used stays used. Throws weir::error, and then nothing has changed. */
        void set_rules(std::string_view text)
        {
            weir_error e;
            if (weir_set_rules(c(), text.data(), text.size(), &e) < 0)
                throw error(e);
        }

        /* For programs without options.watch: takes over a rules file that has changed. true: new rules are in force.
         * Throws weir::error once for each bad version; its good rules are in force then. */
        bool poll()
        {
            weir_error e;
            int r = weir_poll(c(), &e);
            if (r < 0)
                throw error(e);
            return r > 0;
        }

        /* Forgets what one subject has used of a rule: its values in the order of the rule's `by`. */
        void reset(const std::string &rule, std::initializer_list<std::string_view> by)
        {
            std::vector<struct weir_str> values;
            for (std::string_view value : by)
                values.push_back(str(value));
            weir_error e;
            if (weir_reset(c(), rule.c_str(), values.data(), values.size(), &e) < 0)
                throw error(e);
        }

        /* For the functions of weir.h. It stays ours. */
        weir *c() const noexcept { return state_->weir; }

    private:
        /* In one place that never moves: weir's threads call the functions until it is closed. */
        struct state {
            options with;
            ::weir *weir;

            ~state() { weir_close(weir); }
        };

        static const char *c_string(const std::string &s) noexcept { return s.empty() ? nullptr : s.c_str(); }

        static weir_options c_options(options &from) noexcept
        {
            weir_options c{};
            c.size = sizeof c;
            c.rules_file = c_string(from.rules_file);
            c.rules_text = c_string(from.rules_text);
            c.rules_text_len = from.rules_text.size();
            c.cells_file = c_string(from.cells_file);
            c.cells_keys = from.cells_keys;
            c.cells_bytes = from.cells_bytes;
            c.cells_memory = from.cells_memory;
            c.cells_memory_bytes = from.cells_memory_bytes;
            c.watch_ms = static_cast<std::uint32_t>(from.watch.count());
            c.trusted_proxies = from.trusted_proxies ? from.trusted_proxies->c_str() : nullptr;
            c.counters = c_string(from.counters);
            c.store_deadline_ms = static_cast<std::uint32_t>(from.store_deadline.count());
            c.store_hosts = from.store_hosts;
            c.never_wait = from.never_wait;
            set_functions(c, from);
            return c;
        }

        static void set_functions(weir_options &c, options &from) noexcept
        {
            c.user_id_data = c.on_rules_data = c.on_store_data = &from;
            if (from.user_id)
                c.user_id = [](const weir_request *r, char *buf, std::size_t cap, void *data) noexcept {
                    return static_cast<options *>(data)->user_id(*r).copy(buf, cap);
                };
            if (from.on_rules)
                c.on_rules = [](const weir_error *e, void *data) noexcept { static_cast<options *>(data)->on_rules(*e); };
            if (from.on_store)
                c.on_store = [](weir_store_event event, const char *text, void *data) noexcept {
                    static_cast<options *>(data)->on_store(event, text);
                };
        }

        std::unique_ptr<state> state_;
    };

    /* The guard: charges `cost` for `event` and `key` now. true: go on. */
    static verdict detect(const handle &weir, std::string_view event, std::string_view key, std::uint32_t cost = 1) noexcept
    {
        return weir.check(event, key, cost);
    }

    /* The same, but a refusal is thrown: weir::too_frequent, or weir::error if it could not be judged. */
    static verdict require(const handle &weir, std::string_view event, std::string_view key, std::uint32_t cost = 1)
    {
        verdict v = weir.check(event, key, cost);
        if (v.failed() && (blank(event) || blank(key)))
            throw error(WEIR_E_BLANK, "a blank event or key: say what is done, and who does it");
        if (v.failed())
            throw error(WEIR_E_NO_MEMORY, "could not be judged: out of memory");
        if (!v)
            throw too_frequent(v);
        return v;
    }

    /* A verdict whose charge is given back if an exception ends its life, or by give_back(). Its handle has to
     * stay. */
    class charge : public verdict {
    public:
        charge(const handle &weir, std::string event, std::string key, std::uint32_t cost = 1)
            : verdict(blank(event) || blank(key) ? verdict() : weir.check(request(event, key, cost).refundable())),
              weir_(weir), event_(std::move(event)), key_(std::move(key))
        {
        }
        charge(const handle &&, std::string, std::string, std::uint32_t = 1) = delete; /* it would be gone */
        charge(const charge &) = delete;
        charge &operator=(const charge &) = delete;

        ~charge()
        {
            if (std::uncaught_exceptions() > exceptions_)
                give_back();
        }

        /* Returns to how many limits; the second time to none. */
        int give_back() const noexcept { return weir_.refund(request(event_, key_), *this); }

    private:
        const handle &weir_;
        std::string event_, key_;
        int exceptions_ = std::uncaught_exceptions();
    };

    /* ---- decide in an event loop ---- */

    /* With options.counters a decision may have to wait for the store; an event loop does not wait. Watch fd() for reading
     * and call run() when it is readable; flush() at the end of each turn that has checked. For one thread, and not longer
     * than its handle. */
    class loop {
    public:
        using decided = std::function<void(const verdict &)>;

        /* Throws weir::error. */
        explicit loop(const handle &weir)
        {
            weir_loop *made;
            weir_error e;
            if (weir_loop_open(&made, weir.c(), &e) < 0)
                throw error(e);
            c_.reset(made);
        }
        explicit loop(const handle &&) = delete; /* it would be gone */

        int fd() const noexcept { return weir_loop_fd(c_.get()); }

        void run() noexcept { weir_loop_run(c_.get()); }

        void flush() noexcept { weir_loop_flush(c_.get()); }

        /* Calls `then` once: before it returns, or from run(), flush() or the end of the loop. It must not throw. */
        void check(const request &r, decided then, clock::time_point now = clock::now())
        {
            auto waits = std::make_unique<decided>(std::move(then));
            weir_verdict v;
            if (weir_loop_check(c_.get(), &r.c(), us(now), &v, call, waits.get()) != 0)
                call(&v, waits.release());
            else
                waits.release();
        }

    private:
        struct closer {
            void operator()(weir_loop *c) const noexcept { weir_loop_close(c); }
        };

        static void call(const weir_verdict *v, void *data) noexcept
        {
            std::unique_ptr<decided> then(static_cast<decided *>(data));
            (*then)(verdict(*v));
        }

        std::unique_ptr<weir_loop, closer> c_;
    };

private:
    static struct weir_str str(std::string_view s) noexcept { return { s.data(), s.size() }; }

    static std::int64_t us(clock::time_point t) noexcept
    {
        return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
    }

    static bool blank(std::string_view s) noexcept { return s.find_first_not_of(" \t\n\v\f\r") == s.npos; }

    static header_list list(const weir_header *headers, std::size_t count)
    {
        header_list all;
        for (std::size_t i = 0; i < count; i++)
            all.emplace_back(view(headers[i].name), view(headers[i].value));
        return all;
    }

    /* What a function of weir.h writes, that says how long it is. */
    template <typename Write> static std::string written(Write write)
    {
        std::string text(write(nullptr, 0), '\0');
        write(text.data(), text.size() + 1);
        return text;
    }
};

#endif
