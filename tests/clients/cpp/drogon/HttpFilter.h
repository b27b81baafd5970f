/* Stands in for Drogon, which Debian 12 does not have: of its interface what the filter in docs/c.md uses, and no more. */
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace trantor
{
struct InetAddress {
    std::string ip;

    std::string toIp() const
    {
        return ip;
    }
};
} // namespace trantor

namespace drogon
{
enum HttpStatusCode { kUnknown = 0 };

class HttpRequest
{
  public:
    trantor::InetAddress peer;
    std::string original_path;
    std::map<std::string, std::string> all;

    const char *methodString() const
    {
        return "GET";
    }
    const std::string &getOriginalPath() const
    {
        return original_path;
    }
    const trantor::InetAddress &peerAddr() const
    {
        return peer;
    }
    const std::map<std::string, std::string> &headers() const
    {
        return all;
    }

    const std::string &getHeader(std::string name) const
    {
        static const std::string none;
        auto found = all.find(name);
        return found == all.end() ? none : found->second;
    }
};

class HttpResponse
{
  public:
    int status = 200;
    std::string type, body;
    std::map<std::string, std::string> all;

    static std::shared_ptr<HttpResponse> newHttpResponse()
    {
        return std::make_shared<HttpResponse>();
    }
    void setStatusCode(HttpStatusCode code)
    {
        status = code;
    }
    void setContentTypeString(const std::string_view &text)
    {
        type = text;
    }
    void setBody(const std::string &text)
    {
        body = text;
    }
    void addHeader(std::string name, const std::string &value)
    {
        all[name] = value;
    }
};

using HttpRequestPtr = std::shared_ptr<HttpRequest>;
using HttpResponsePtr = std::shared_ptr<HttpResponse>;
using FilterCallback = std::function<void(const HttpResponsePtr &)>;
using FilterChainCallback = std::function<void()>;

class HttpFilterBase
{
  public:
    virtual ~HttpFilterBase() = default;
    virtual void doFilter(const HttpRequestPtr &req, FilterCallback &&fcb, FilterChainCallback &&fccb) = 0;
};

/* Filters are found by their names, as in Drogon: who is made is known, and a class that the compiler left out is not. */
inline std::function<std::unique_ptr<HttpFilterBase>()> &maker()
{
    static std::function<std::unique_ptr<HttpFilterBase>()> made;
    return made;
}

template <typename T> class HttpFilter : public HttpFilterBase
{
    struct Registration {
        Registration()
        {
            maker() = [] { return std::make_unique<T>(); };
        }
        bool is_there() const
        {
            return true;
        }
    };
    static Registration registration_;

  public:
    virtual bool isThere() const
    {
        return registration_.is_there();
    }
};

template <typename T> typename HttpFilter<T>::Registration HttpFilter<T>::registration_;
} // namespace drogon
