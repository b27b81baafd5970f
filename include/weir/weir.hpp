/* weir for C++17: the functions of weir.h, with handles that close themselves, return values instead of out parameters, and
 * std::chrono.
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
 *         // The charge is given back if an exception leaves the braces.
 *         if (weir::charge charge{ weir, "ocr", "ann" })
 *             std::cout << "submitted again\n";
 *
 *         // Any request. Standard headers for the answer, and the refusal as the rules want it.
 *         weir::usage usage;
 *         auto request = weir::request().method("GET").path("/notes?page=2").ip("203.0.113.7").user("ann").usage(usage);
 *         auto verdict = weir.check(request);
 *         for (auto &[name, value] : weir.headers(request, verdict))
 *             std::cout << name << ": " << value << "\n";
 *         if (!verdict)
 *             std::cout << weir.refuse(request, verdict).body;
 *     } catch (const std::runtime_error &e) { // weir::error, weir::too_frequent
 *         std::cerr << e.what() << "\n";
 *         return 1;
 *     }
 *
 * Deciding about a request does not throw. It allocates memory only in the first decisions of a thread, if more than 32
 * limits or 64 rules apply to the request, with counters in a store, and if options.user_id does. If the memory cannot be
 * allocated, the request is refused and failed() is true. Opening a handle, changing rules and functions that return
 * strings or lists may throw.
 *
 * Any number of threads may use one handle at the same time. weir.h explains the fields and has further functions: pass
 * handle.c() to them. Link with `pkg-config --cflags --libs weir`. */
#ifndef WEIR_HPP
#define WEIR_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
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

/* A struct, not a namespace: C++ does not allow a namespace with the name of the `struct weir` in weir.h. The library still
 * defines what a `struct weir *` points to; this header never creates or dereferences one. */
struct weir {
    explicit weir() = delete; /* explicit: without it C++17 still allows weir{} */
    weir(const weir &) = delete;
    weir &operator=(const weir &) = delete;
    ~weir() = delete; /* handle.c() must not be passed to delete or std::unique_ptr */
    class handle;
    class request;

    using clock = std::chrono::system_clock;
    using milliseconds = std::chrono::milliseconds;
    using header_list = std::vector<std::pair<std::string, std::string>>;

    /* Value of reset() and retry_after(): no wait is long enough. */
    static constexpr milliseconds never{ WEIR_NEVER };

    /* Returns a view of the same bytes. */
    static std::string_view view(struct weir_str s) noexcept { return { s.ptr, s.len }; }

    /* Returns a header for request::headers. It keeps views: `name` and `value` must remain valid while it is used. */
    static weir_header header(std::string_view name, std::string_view value) noexcept { return { str(name), str(value) }; }

    /* Returns a cost for request::costs. It keeps a view: `unit` must remain valid while it is used. */
    static weir_cost cost(std::string_view unit, std::uint64_t amount) noexcept { return { str(unit), amount }; }

    /* Something other than a decision failed. what() says why. */
    class error : public std::runtime_error {
    public:
        error(weir_code code, const std::string &text) : std::runtime_error(text), code_(code) {}

        explicit error(const weir_error &e) : error(e.code, e.text) {}

        weir_code code() const noexcept { return code_; }

    private:
        weir_code code_;
    };

    /* ---- what a request asks for beside its verdict ---- */

    /* The charges and holds of a request, for handle.settle, renew, release and refund. false: nothing to settle. */
    class receipt {
    public:
        receipt() noexcept { c_.count = 0; }

        /* Reads what text() returned. Throws weir::error if it is not a receipt. */
        explicit receipt(std::string_view text)
        {
            if (weir_receipt_read(str(text), &c_) < 0)
                throw error(WEIR_E_INVALID, "not a valid receipt; pass the text that receipt.text() returned");
        }

        explicit operator bool() const noexcept { return c_.count > 0; }

        /* The receipt as text, to send it elsewhere; empty if there is nothing to refund. */
        std::string text() const
        {
            if (c_.count == 0)
                return {};
            return written([this](char *buf, std::size_t cap) { return weir_receipt_text(&c_, buf, cap); });
        }

        const weir_receipt &c() const noexcept { return c_; }

    private:
        friend class request;
        weir_receipt c_;
    };

    /* The names of shadow rules that would have refused, at most WEIR_SHADOW_MAX. */
    class shadows {
    public:
        shadows() noexcept { c_.count = 0; }

        /* Views, valid until the next decision that uses this object. */
        std::vector<std::string_view> names() const { return { c_.names, c_.names + c_.count }; }

        const weir_shadows &c() const noexcept { return c_; }

    private:
        friend class request;
        weir_shadows c_;
    };

    /* The rest of all limits of a request, for handle.headers and handle.refuse. */
    class usage {
    public:
        usage() noexcept { c_.count = 0; }

        const weir_usage &c() const noexcept { return c_; }

    private:
        friend class request;
        weir_usage c_;
    };

    /* ---- the request ---- */

    /* Attributes that are not set are ignored; the cost is 1. It keeps views: their strings must remain valid while the
     * request is used. See struct weir_request for each attribute. */
    class request {
    public:
        request() noexcept { c_.cost = 1; }

        request(std::string_view event, std::string_view key, std::uint64_t cost = 1) noexcept
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
        /* In binary: 4 or 16 bytes in network order. */
        request &peer_bytes(std::string_view s) noexcept { return set(c_.peer_bytes, str(s)); }
        request &user(std::string_view s) noexcept { return set(c_.user, str(s)); }
        request &event(std::string_view s) noexcept { return set(c_.event, str(s)); }
        request &key(std::string_view s) noexcept { return set(c_.key, str(s)); }
        request &domain(std::string_view s) noexcept { return set(c_.domain, str(s)); }

        /* `all` must remain valid while the request is used; weir::header makes its elements. */
        request &headers(const std::vector<weir_header> &all) noexcept
        {
            c_.headers = all.data();
            c_.header_count = all.size();
            return *this;
        }
        request &headers(std::vector<weir_header> &&) = delete; /* a temporary would dangle */

        /* The entries of a descriptor, in their order: keys and values. The same applies to `entries`. */
        request &descriptor(const std::vector<weir_header> &entries) noexcept
        {
            c_.descriptor = entries.data();
            c_.descriptor_count = entries.size();
            return *this;
        }
        request &descriptor(std::vector<weir_header> &&) = delete;

        /* How much to charge, 1 by default; 0 decides without charging. */
        request &cost(std::uint64_t n) noexcept { return set(c_.cost, n); }
        /* Costs in other units than requests. `all` must remain valid while the request is used; weir::cost makes its
         * elements. */
        request &costs(const std::vector<weir_cost> &all) noexcept
        {
            c_.costs = all.data();
            c_.cost_count = all.size();
            return *this;
        }
        request &costs(std::vector<weir_cost> &&) = delete; /* a temporary would dangle */
        /* Decides as if the cost were charged, but charges nothing. */
        request &peek(bool yes = true) noexcept { return set(c_.peek, yes); }
        /* The caller does not need remaining(), reset() and window() of an allowed verdict. */
        request &brief(bool yes = true) noexcept { return set(c_.brief, yes); }
        /* The charge is a hold that ends after this time, see weir_reserve and weir::hold; 0: it stays. */
        request &ttl(milliseconds time) noexcept
        {
            bool fits = time.count() >= 0 && time.count() <= WEIR_TTL_MAX_MS;
            return set(c_.ttl_ms, fits ? static_cast<std::uint32_t>(time.count()) : UINT32_MAX);
        }
        /* A hold that ends by itself is kept as a charge. */
        request &keep(bool yes = true) noexcept { return set(c_.keep, yes); }
        /* Write the receipt only if something is held, such as a slot. */
        request &if_held(bool yes = true) noexcept { return set(c_.if_held, yes); }
        /* `to` receives what was charged, for handle.settle; it must remain valid until the decision is made. */
        request &receipt(weir::receipt &to) noexcept { return set(c_.receipt, &to.c_); }
        /* `to` receives the shadow rules that would have refused; the same applies. */
        request &shadows(weir::shadows &to) noexcept { return set(c_.shadows, &to.c_); }
        /* `to` receives what all limits have left, and must remain valid until the headers are written. */
        request &usage(weir::usage &to) noexcept { return set(c_.usage, &to.c_); }

        /* For options.user_id and options.refuse, as c().context; weir does not use it. */
        request &context(void *data) noexcept { return set(c_.context, data); }

        /* weir calls it for each rule that applies, with the context; see struct weir_request. */
        request &each_rule(void (*to)(const weir_rule_said *, void *)) noexcept { return set(c_.each_rule, to); }

        const weir_request &c() const noexcept { return c_; }

    private:
        template <typename T> request &set(T &field, T value) noexcept
        {
            field = value;
            return *this;
        }

        weir_request c_{};
    };

    /* ---- the verdict ---- */

    class verdict {
    public:
        /* Refused with status 503, because no decision was made. */
        verdict() noexcept : c_() { c_.status = 503; }

        explicit verdict(const weir_verdict &from) noexcept : c_(from) {}

        explicit operator bool() const noexcept { return c_.allowed; }
        bool allowed() const noexcept { return c_.allowed; }

        /* false: no rule applies, and the values from rule() to window() have no meaning. */
        bool applied() const noexcept { return c_.applied; }

        /* Some rule applies, if only one in shadow mode, or one that limits nothing. */
        bool matched() const noexcept { return c_.matched; }

        /* Refused because the store does not answer, not because a limit is reached. */
        bool unavailable() const noexcept { return c_.unavailable; }
        bool penalty() const noexcept { return c_.penalty; }

        /* Refused, but not by a rule: the event or key is blank, there was no memory, or the request repeats a header with
         * different values (then status() is 400). */
        bool failed() const noexcept { return !c_.allowed && !c_.applied; }

        /* HTTP status of the refusal; 0 if allowed. */
        int status() const noexcept { return c_.status; }

        /* Views into the verdict, valid as long as it is: `auto rule = weir::detect(…).rule();` dangles. Keep the
         * verdict, or copy the view to a std::string. */
        std::string_view rule() const noexcept { return c_.rule; }
        std::string_view limit() const noexcept { return c_.limit; }

        /* The unit that the named limit counts; empty for requests. */
        std::string_view unit() const noexcept { return c_.unit; }

        /* Capacity of the named limit, and whole units left of it after this charge. */
        std::uint64_t max() const noexcept { return c_.max; }
        std::uint64_t remaining() const noexcept { return c_.remaining; }

        /* Whole units used beyond max(): time repays them before anything passes again. */
        std::uint64_t debt() const noexcept { return c_.debt; }

        /* Time until the limit is unused again, or weir::never. */
        milliseconds reset() const noexcept { return milliseconds(c_.reset_ms); }

        /* 0 if allowed, weir::never, or the time after which this request would pass. */
        milliseconds retry_after() const noexcept { return milliseconds(c_.retry_after_ms); }

        /* The time in which max() becomes available again. */
        milliseconds window() const noexcept { return milliseconds(c_.window_ms); }

        /* Number of shadow rules that would have refused; request.shadows() asks for their names. */
        std::uint32_t shadow_count() const noexcept { return c_.shadow_count; }

        /* One line of JSON, without a newline, with the shadow rules and the receipt that the request asked for. */
        std::string json(const request &r = {}) const
        {
            return written([&](char *buf, std::size_t cap) { return weir_verdict_json(&r.c(), &c_, buf, cap); });
        }

        const weir_verdict &c() const noexcept { return c_; }

    private:
        friend class handle;

        verdict(weir *weir, const request &r, std::int64_t now_us) noexcept { weir_check(weir, &r.c(), now_us, &c_); }

        weir_verdict c_;
    };

    /* Checks of requests that differ in one attribute only: handle.prepare makes it. Any number of threads may use one at
     * the same time. Can be moved, but not copied. */
    class prepared {
    public:
        /* Decides about the request with this value of the attribute that varies, and charges it if it is allowed. */
        verdict check(std::string_view value, std::uint64_t cost = 1, clock::time_point now = clock::now()) const noexcept
        {
            weir_verdict v;
            weir_prepared_check(c_.get(), str(value), cost, us(now), &v);
            return verdict(v);
        }

        weir_prepared *c() const noexcept { return c_.get(); }

    private:
        friend class handle;

        struct closer {
            void operator()(weir_prepared *p) const noexcept { weir_prepared_free(p); }
        };

        explicit prepared(weir_prepared *from) noexcept : c_(from) {}

        std::unique_ptr<weir_prepared, closer> c_;
    };

    /* weir::require throws it for a refusal. */
    class too_frequent : public std::runtime_error {
    public:
        explicit too_frequent(const weir::verdict &v) : std::runtime_error(text(v)), verdict_(v) {}

        const weir::verdict &verdict() const noexcept { return verdict_; }

    private:
        static std::string text(const weir::verdict &v)
        {
            std::string by = " by limit " + std::string(v.limit()) + " of rule " + std::string(v.rule());
            if (v.unavailable())
                return "refused" + by + ": the store with its counters is unavailable";
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
        header_list headers; /* those of the rule, and the standard ones */
    };

    /* ---- open ---- */

    /* See struct weir_options for each field. The handle keeps the functions until it is closed. Any thread of weir or
     * of its users may call them. Except for `refuse` they must not throw: an exception would end the program. */
    struct options {
        std::string rules_file;
        std::string rules_text; /* the rules themselves, instead of a file */
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

        /* Returns the user of a request that has none; "" if there is no user. Called only if a rule uses the user. */
        std::function<std::string(const weir_request &)> user_id;
        /* Changes the refusal that handle.refuse returns. */
        std::function<void(const weir::request &, const weir::verdict &, refusal &)> refuse;
        /* Called for every change of the rules file; code is 0 if all rules are in force, else text says what is wrong. */
        std::function<void(const weir_error &)> on_rules;
        /* Called for each change of the state of the store that `counters` names. */
        std::function<void(weir_store_event, std::string_view)> on_store;
    };

    /* ---- decide ---- */

    /* Can be moved, but not copied. After a move the old handle can only be assigned to or destroyed. */
    class handle {
    public:
        /* Opens a handle, see weir_open. Throws weir::error. */
        explicit handle(options from) : state_(new state{ std::move(from), nullptr })
        {
            weir_options c = c_options(state_->with);
            weir_error e;
            if (weir_open(&state_->weir, &c, &e) < 0)
                throw error(e);
        }

        /* Decides about a request and charges it if it is allowed. */
        verdict check(const request &r, clock::time_point now = clock::now()) const noexcept
        {
            return verdict(c(), r, us(now));
        }

        /* Refuses a blank event or key, and failed() is true: no rule could count it. */
        verdict check(std::string_view event, std::string_view key, std::uint64_t cost = 1) const noexcept
        {
            return blank(event) || blank(key) ? verdict() : check(request(event, key, cost));
        }

        /* Decides about many requests, each on its own and in order. Returns a verdict for each. Faster than separate
         * calls, because cache misses overlap. */
        std::vector<verdict> check(const std::vector<request> &all, clock::time_point now = clock::now()) const
        {
            static_assert(sizeof(request) == sizeof(weir_request) && sizeof(verdict) == sizeof(weir_verdict),
                          "an array of the one is an array of the other");
            std::vector<verdict> found(all.size());
            weir_check_batch(c(), reinterpret_cast<const weir_request *>(all.data()), all.size(), us(now),
                             reinterpret_cast<weir_verdict *>(found.data()));
            return found;
        }

        /* Prepares checks of requests that differ in one attribute only, "key" or "user"; see weir_prepare. The handle must
         * outlive it. Throws weir::error. */
        prepared prepare(const request &r, const char *varies) const
        {
            weir_prepared *made;
            weir_error e;
            if (weir_prepare(&made, c(), &r.c(), varies, &e) < 0)
                throw error(e);
            return prepared(made);
        }

        /* The same for a request with a ttl and a receipt; fails with status 503 without one of them, see weir_reserve. */
        verdict reserve(const request &r, clock::time_point now = clock::now()) const noexcept
        {
            weir_verdict v;
            weir_reserve(c(), &r.c(), us(now), &v);
            return verdict(v);
        }

        /* Says what a request has truly cost, in requests and in other units. Units that are not named keep what was held,
         * but a cost of 0 without others gives back everything. Returns the number of limits that were settled; see
         * weir_settle. */
        int settle(const receipt &held, std::uint64_t cost, const std::vector<weir_cost> &costs = {},
                   clock::time_point now = clock::now()) const noexcept
        {
            return std::max(weir_settle(c(), &held.c(), cost, costs.data(), costs.size(), us(now)), 0);
        }

        /* Lets a hold last for `ttl` from now on. Returns the number of limits that still hold; see weir_renew. */
        int renew(const receipt &held, milliseconds ttl, clock::time_point now = clock::now()) const noexcept
        {
            return std::max(weir_renew(c(), &held.c(), request().ttl(ttl).c().ttl_ms, us(now)), 0);
        }

        /* Frees slots, and lets everything else stay. Returns the number of limits; see weir_release. */
        int release(const receipt &held, clock::time_point now = clock::now()) const noexcept
        {
            return std::max(weir_release(c(), &held.c(), us(now)), 0);
        }

        /* Cancels a hold, or gives back a charge. Returns the number of limits refunded; see weir_refund. */
        int refund(const receipt &charged, clock::time_point now = clock::now()) const noexcept
        {
            return std::max(weir_refund(c(), &charged.c(), us(now)), 0);
        }
        /* The receipt says which request it was for; this form remains for programs that pass the request, too. */
        int refund(const request &, const receipt &charged, clock::time_point now = clock::now()) const noexcept
        {
            return refund(charged, now);
        }

        /* Charges what a request has cost when that is known only afterwards; see weir_charge. Throws std::bad_alloc. */
        void charge_afterwards(const request &r, clock::time_point now = clock::now()) const
        {
            if (weir_charge(c(), &r.c(), us(now)) == WEIR_E_NO_MEMORY)
                throw std::bad_alloc();
        }

        /* The headers for the answer: RateLimit-Policy, RateLimit and, if refused, Retry-After, unless the rules or `style`
         * say otherwise. The request should have asked for its usage; see weir_headers. */
        header_list headers(const request &r, const verdict &v, unsigned style = WEIR_HEADERS_SETTING) const
        {
            struct weir_headers all;
            weir_headers(c(), &r.c(), &v.c(), style, &all);
            return list(all.header, all.count);
        }

        /* The same for a verdict whose request is not at hand: only its own limit is there. */
        header_list headers(const verdict &v, unsigned style = WEIR_HEADERS_SETTING) const
        {
            struct weir_headers all;
            weir_headers(c(), nullptr, &v.c(), style, &all);
            return list(all.header, all.count);
        }

        /* Returns the refusal as the rule, the settings and options.refuse define it. Throws std::bad_alloc. */
        refusal refuse(const request &r, const verdict &v, unsigned style = WEIR_HEADERS_SETTING) const
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

        /* Replaces the rules; counts are kept, see weir_set_rules. Throws weir::error, and then nothing has changed. */
        void set_rules(std::string_view text)
        {
            weir_error e;
            if (weir_set_rules(c(), text.data(), text.size(), &e) < 0)
                throw error(e);
        }

        /* For programs without options.watch: loads the rules file if it has changed. Returns true if new rules are in
         * force. Throws weir::error once for each bad version; then its good rules are in force, see weir_poll. */
        bool poll()
        {
            weir_error e;
            int r = weir_poll(c(), &e);
            if (r < 0)
                throw error(e);
            return r > 0;
        }

        /* Forgets what one subject has used of a rule. `by` contains its values in the order of the rule's `by`. Throws
         * weir::error; see weir_reset. */
        void reset(const std::string &rule, std::initializer_list<std::string_view> by)
        {
            std::vector<struct weir_str> values;
            for (std::string_view value : by)
                values.push_back(str(value));
            weir_error e;
            if (weir_reset(c(), rule.c_str(), values.data(), values.size(), &e) < 0)
                throw error(e);
        }

        /* Returns the pointer for the functions of weir.h. The handle still owns it: do not close it. */
        weir *c() const noexcept { return state_->weir; }

    private:
        /* Never moves in memory, because weir's threads call the functions until the handle is closed. */
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

    /* The guard: charges `cost` for `event` and `key` at the current time. The verdict is true if the work may begin. */
    static verdict detect(const handle &weir, std::string_view event, std::string_view key, std::uint64_t cost = 1) noexcept
    {
        return weir.check(event, key, cost);
    }

    /* The same, but throws weir::too_frequent for a refusal, and weir::error if the request could not be judged. Returns
     * the verdict of an allowed request. */
    static verdict require(const handle &weir, std::string_view event, std::string_view key, std::uint64_t cost = 1)
    {
        verdict v = weir.check(event, key, cost);
        if (v.failed() && (blank(event) || blank(key)))
            throw error(WEIR_E_BLANK, "the event or the key is blank; pass the action and who does it");
        if (v.failed())
            throw error(WEIR_E_NO_MEMORY, "the request cannot be judged: out of memory");
        if (!v)
            throw too_frequent(v);
        return v;
    }

    /* A verdict whose charge is refunded if an exception destroys it, or by give_back(). Its handle must outlive it. */
    class charge : public verdict {
    public:
        charge(const handle &weir, std::string_view event, std::string_view key, std::uint64_t cost = 1) noexcept
            : weir_(weir)
        {
            if (!blank(event) && !blank(key))
                verdict::operator=(weir.check(request(event, key, cost).receipt(receipt_)));
        }
        charge(const handle &&, std::string_view, std::string_view, std::uint64_t = 1) = delete; /* it would dangle */
        charge(const charge &) = delete;
        charge &operator=(const charge &) = delete;

        ~charge()
        {
            if (std::uncaught_exceptions() > exceptions_)
                give_back();
        }

        /* Refunds the charge now. Returns the number of limits refunded; a second call returns 0. */
        int give_back() const noexcept { return weir_.refund(receipt_); }

    private:
        const handle &weir_;
        receipt receipt_;
        int exceptions_ = std::uncaught_exceptions();
    };

    /* A verdict whose charge is held while this object lives. The end of its scope frees slots of limits with `concurrent`,
     * and lets what was held stay as a charge; an exception that ends the scope cancels it. Settle it with the true amounts
     * before that. Its handle must outlive it. It can be moved, not copied.
     *
     *     weir::hold hold{ weir, weir::request("llm", user).ttl(60s).costs(most) };
     *     if (hold)
     *         hold.settle(1, { weir::cost("tokens", ask_model()) });
     *
     * A request without a ttl is charged as always, and holds slots only. */
    class hold : public verdict {
    public:
        explicit hold(const handle &weir, request r, clock::time_point now = clock::now()) noexcept
            : weir_(&weir), reserves_(r.c().ttl_ms > 0)
        {
            r.receipt(receipt_).if_held(!reserves_);
            verdict::operator=(reserves_ ? weir.reserve(r, now) : weir.check(r, now));
        }
        explicit hold(const handle &&, request, clock::time_point = clock::now()) = delete; /* a temporary would dangle */
        hold(hold &&from) noexcept
            : verdict(from), weir_(from.weir_), receipt_(std::exchange(from.receipt_, {})), reserves_(from.reserves_)
        {
        }
        hold &operator=(hold &&from) noexcept
        {
            if (this != &from) {
                end();
                verdict::operator=(from);
                weir_ = from.weir_;
                receipt_ = std::exchange(from.receipt_, {});
                reserves_ = from.reserves_;
            }
            return *this;
        }
        hold(const hold &) = delete;
        hold &operator=(const hold &) = delete;

        ~hold() { end(); }

        /* Ends the hold with the true amounts, see handle.settle. Returns the number of limits that were settled; a second
         * end of any kind returns 0. */
        int settle(std::uint64_t cost, const std::vector<weir_cost> &costs = {}) noexcept
        {
            return weir_->settle(taken(), cost, costs);
        }
        /* Ends it with what was held. */
        int release() noexcept { return weir_->release(taken()); }
        /* Ends it, and gives back everything. */
        int cancel() noexcept { return weir_->refund(taken()); }
        /* Lets it last for `ttl` from now on. Returns the number of limits that still hold. */
        int renew(milliseconds ttl) const noexcept { return weir_->renew(receipt_, ttl); }

        /* Hands the hold to somebody else, for example as receipt.text(): the end of the scope does nothing then. */
        weir::receipt taken() noexcept { return std::exchange(receipt_, {}); }

    private:
        void end() noexcept
        {
            if (receipt_ && reserves_ && std::uncaught_exceptions() > exceptions_)
                cancel();
            else if (receipt_)
                release();
        }

        const handle *weir_;
        weir::receipt receipt_;
        bool reserves_;
        int exceptions_ = std::uncaught_exceptions();
    };

    /* ---- decide in an event loop ---- */

    /* With options.counters a decision may have to wait for the store; an event loop must not block. Watch fd() for
     * reading and call run() when it is readable. Call flush() at the end of each turn that called check(). Only one
     * thread may use a loop, and its handle must outlive it. See struct weir_loop. */
    class loop {
    public:
        using decided = std::function<void(const verdict &)>;

        /* Throws weir::error, also for a handle without options.counters. */
        explicit loop(const handle &weir)
        {
            weir_loop *made;
            weir_error e;
            if (weir_loop_open(&made, weir.c(), &e) < 0)
                throw error(e);
            c_.reset(made);
        }
        explicit loop(const handle &&) = delete; /* a temporary would dangle */

        int fd() const noexcept { return weir_loop_fd(c_.get()); }

        void run() noexcept { weir_loop_run(c_.get()); }

        void flush() noexcept { weir_loop_flush(c_.get()); }

        /* Calls `then` once with the verdict: before check() returns, or from run(), flush() or the destructor of the loop.
         * `then` must not throw. */
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

    /* Returns the text that `write` writes: a function of weir.h that returns the length of the whole text. */
    template <typename Write> static std::string written(Write write)
    {
        std::string text(write(nullptr, 0), '\0');
        write(text.data(), text.size() + 1);
        return text;
    }
};

#endif
