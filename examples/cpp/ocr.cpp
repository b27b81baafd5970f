/* A service that does something costly for its users, on libmicrohttpd and a pool of threads.
 *
 *     c++ -std=c++17 -pthread -o ocr ocr.cpp $(pkg-config --cflags --libs weir libmicrohttpd)
 *     ./ocr --port 8000 --rules rules.yaml
 *
 *     curl -i -H 'X-User: ann' -d 'page 1' http://127.0.0.1:8000/ocr   20 pages an hour; each 1000 bytes are a page
 *     curl -i -H 'X-User: ann' -d '???' http://127.0.0.1:8000/ocr      cannot be read, so that nothing is charged
 *     curl -i -H 'X-User: ann' http://127.0.0.1:8000/left              how much is left; charges nothing
 *
 * It believes X-User. A real server would take the user from its session, or from a token that it has checked. */
#include <arpa/inet.h>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <microhttpd.h>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weir/weir.hpp>

/* ---- the costly work ---- */

struct unreadable : std::runtime_error { using std::runtime_error::runtime_error; };

static std::uint32_t pages(const std::string &image) { return 1 + static_cast<std::uint32_t>(image.size() / 1000); }

static std::string recognise(const std::string &image)
{
    if (image.find('?') != image.npos)
        throw unreadable("this image cannot be read; it was not charged\n");
    return "pages read: " + std::to_string(pages(image)) + "\n";
}

/* Few threads do the work, whatever the number of connections. */
class pool {
public:
    explicit pool(unsigned count)
    {
        while (count-- > 0)
            threads_.emplace_back([this] { work(); });
    }

    ~pool()
    {
        {
            std::lock_guard lock(mutex_);
            ends_ = true;
        }
        news_.notify_all();
        for (std::thread &thread : threads_)
            thread.join();
    }

    /* What the job returns or throws is in the future. */
    std::future<std::string> run(std::function<std::string()> job)
    {
        std::packaged_task<std::string()> task(std::move(job));
        std::future<std::string> result = task.get_future();
        {
            std::lock_guard lock(mutex_);
            jobs_.push_back(std::move(task));
        }
        news_.notify_one();
        return result;
    }

private:
    void work()
    {
        for (std::unique_lock lock(mutex_);;) {
            news_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
            if (jobs_.empty())
                return;
            std::packaged_task<std::string()> job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            job();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<std::packaged_task<std::string()>> jobs_;
    std::vector<std::thread> threads_;
    bool ends_ = false;
};

/* ---- the service ---- */

struct call {
    std::string path, peer, user, body;
};

struct answer {
    int status;
    std::string body;
    weir::header_list headers;
};

class service {
public:
    explicit service(const std::string &rules_file) : weir_(options(rules_file)), pool_(2) {}

    /* By address first, as soon as the headers are there: whoever asks for too much is refused before a body is read. The
     * connection ends then. A client that does not look for an answer while it sends a large body may miss this one. */
    std::optional<answer> turn_away(const call &c)
    {
        weir::usage usage;
        weir::request request = weir::request().path(c.path).peer(c.peer).usage(usage);
        weir::verdict verdict = weir_.check(request);
        if (!verdict)
            return refused(request, verdict);
        if (c.path != "/ocr" && c.path != "/left")
            return answer{ 404, "there are /ocr and /left\n", weir_.headers(request, verdict) };
        if (c.user.empty())
            return answer{ 401, "who are you? say it in X-User\n", weir_.headers(request, verdict) };
        return std::nullopt;
    }

    /* Then by user, when the body is there: its pages are the cost. */
    answer handle(const call &c)
    try {
        return c.path == "/ocr" ? ocr(c) : left(c);
    } catch (const unreadable &e) {
        return { 422, e.what(), left(c).headers };
    }

private:
    static weir::options options(const std::string &rules_file)
    {
        weir::options o;
        o.rules_file = rules_file;
        o.watch = weir::milliseconds(200);
        o.on_rules = [](const weir_error &e) { std::cerr << (e.code ? e.text : "new rules are in force") << std::endl; };
        o.refuse = [](const weir::request &, const weir::verdict &v, weir::refusal &refusal) {
            refusal.content_type = "application/json";
            refusal.body = "{\"error\":\"slow down\",\"wait_ms\":" + std::to_string(v.retry_after().count()) + "}\n";
        };
        return o;
    }

    /* The guard. If recognise throws, the exception passes through here, and the charge gives back what it took. */
    answer ocr(const call &c)
    {
        weir::charge charge(weir_, "ocr", c.user, pages(c.body));
        if (!charge)
            return refused(weir::request("ocr", c.user), charge);
        std::string text = pool_.run([&] { return recognise(c.body); }).get();
        return { 200, text, weir_.headers(charge) };
    }

    answer left(const call &c)
    {
        weir::usage usage;
        weir::request request = weir::request("ocr", c.user).cost(0).usage(usage);
        weir::verdict verdict = weir_.check(request);
        return { 200, std::to_string(verdict.remaining()) + "\n", weir_.headers(request, verdict) };
    }

    answer refused(const weir::request &request, const weir::verdict &verdict)
    {
        weir::refusal r = weir_.refuse(request, verdict);
        r.headers.emplace_back("Content-Type", r.content_type);
        return { r.status, r.body, r.headers };
    }

    weir::handle weir_;
    pool pool_;
};

/* ---- HTTP ---- */

static MHD_Result send(MHD_Connection *connection, const answer &a)
{
    MHD_Response *response =
        MHD_create_response_from_buffer(a.body.size(), const_cast<char *>(a.body.data()), MHD_RESPMEM_MUST_COPY);
    for (auto &[name, value] : a.headers)
        MHD_add_response_header(response, name.c_str(), value.c_str());
    MHD_Result sent = MHD_queue_response(connection, static_cast<unsigned>(a.status), response);
    MHD_destroy_response(response);
    return sent;
}

static std::string peer_of(MHD_Connection *connection)
{
    const sockaddr *peer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(peer)->sin_addr, text, sizeof text);
    return text;
}

/* Called with the headers first, then with each piece of the body, and at last with nothing more. Exceptions end here, and
 * with them the connection: the caller is C. */
static MHD_Result on_call(void *data, MHD_Connection *connection, const char *path, const char *, const char *,
                          const char *piece, std::size_t *piece_size, void **state) noexcept
try {
    auto s = static_cast<service *>(data);
    auto c = static_cast<call *>(*state);
    if (!c) {
        const char *user = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-User");
        *state = c = new call{ path, peer_of(connection), user ? user : "", "" };
        std::optional<answer> early = s->turn_away(*c);
        return early ? send(connection, *early) : MHD_YES;
    }
    if (*piece_size > 0) {
        c->body.append(piece, std::exchange(*piece_size, 0));
        return c->body.size() < 1000000 ? MHD_YES : MHD_NO;
    }
    return send(connection, s->handle(*c));
} catch (const std::exception &e) {
    std::cerr << e.what() << std::endl;
    return MHD_NO;
}

static void on_end(void *, MHD_Connection *, void **state, MHD_RequestTerminationCode) noexcept
{
    delete static_cast<call *>(*state);
}

using daemon_ptr = std::unique_ptr<MHD_Daemon, decltype(&MHD_stop_daemon)>;

static daemon_ptr start(service &service, const char *port)
{
    sockaddr_in on{};
    on.sin_family = AF_INET;
    on.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    on.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0, nullptr, nullptr, on_call,
                         &service, MHD_OPTION_SOCK_ADDR, &on, MHD_OPTION_NOTIFY_COMPLETED, on_end, nullptr, MHD_OPTION_END);
    if (!daemon)
        throw std::runtime_error(std::string("cannot listen on 127.0.0.1:") + port + ": " + std::strerror(errno));
    return { daemon, MHD_stop_daemon };
}

int main(int argc, char **argv)
try {
    if (argc != 5 || std::string_view(argv[1]) != "--port" || std::string_view(argv[3]) != "--rules")
        throw std::runtime_error("usage: ocr --port PORT --rules FILE (port 0: any that is free)");
    /* Blocked in all threads, so that it is us who get the signal to end. */
    sigset_t end;
    int signal;
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, nullptr);

    service service(argv[4]);
    daemon_ptr daemon = start(service, argv[2]);
    std::cout << "listening on http://127.0.0.1:" << MHD_get_daemon_info(daemon.get(), MHD_DAEMON_INFO_BIND_PORT)->port
              << std::endl;
    sigwait(&end, &signal);
} catch (const std::exception &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
