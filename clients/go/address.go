package weir

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

const defaultPort = "6380"

// What is wrong with a URL is told without it: there may be a token in it.
var errURL = errors.New("weir: the url must look like redis://HOST:PORT, redis://:TOKEN@HOST:PORT, rediss://HOST:PORT or unix:///PATH, " +
	"with special characters of the token as %2F")

// readURL returns the settings of go-redis, and the address as it is shown: without the token.
func readURL(text string) (*redis.Options, string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" {
		return nil, "", errURL
	}
	settings := &redis.Options{
		Protocol:              2,
		MaxRetries:            -1, // they multiply the deadline, and could be charged twice
		ContextTimeoutEnabled: true,
		ReadTimeout:           -1, // the context of each exchange has one for all of it
		WriteTimeout:          -1,
		PoolSize:              1 << 10, // go-redis waits for a second after so many failed connections in a row
		DisableIndentity:      true,    // each word is a round trip
	}
	if u.User != nil {
		settings.Username = u.User.Username()
		settings.Password, _ = u.User.Password()
	}
	if err := readPlace(u, settings); err != nil {
		return nil, "", err
	}
	secure, err := readTLS(u)
	if err != nil {
		return nil, "", err
	}
	settings.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address, secure)
	}
	return settings, fmt.Sprintf("%s://%s%s", u.Scheme, u.Host, u.Path), nil
}

func readPlace(u *url.URL, settings *redis.Options) error {
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Path == "" {
			return errURL
		}
		settings.Network, settings.Addr = "unix", u.Path
	case "redis", "rediss":
		if u.Hostname() == "" || strings.Contains(u.Path, "@") {
			return errURL
		}
		port := u.Port()
		if port == "" {
			port = defaultPort
		}
		settings.Network, settings.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
		if number := strings.Trim(u.Path, "/"); number != "" {
			var err error
			if settings.DB, err = strconv.Atoi(number); err != nil || settings.DB < 0 {
				return errURL
			}
		}
	default:
		return errURL
	}
	return nil
}

// readTLS returns nil without TLS. The options have the names that the Python client gives them.
func readTLS(u *url.URL) (*tls.Config, error) {
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	for name := range options {
		if name != "ssl_ca_certs" && name != "ssl_certfile" && name != "ssl_keyfile" {
			return nil, fmt.Errorf("weir: the url has the unknown option %q; known are ssl_ca_certs, ssl_certfile and ssl_keyfile", name)
		}
	}
	if u.Scheme != "rediss" {
		if len(options) > 0 {
			return nil, errors.New("weir: the url has options for TLS, but does not begin with rediss://")
		}
		return nil, nil
	}
	config := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if file := options.Get("ssl_ca_certs"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("weir: ssl_ca_certs: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("weir: ssl_ca_certs: %s has no certificate", file)
		}
	}
	certificate, key := options.Get("ssl_certfile"), options.Get("ssl_keyfile")
	if certificate != "" || key != "" {
		own, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("weir: ssl_certfile and ssl_keyfile: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func dial(ctx context.Context, network, address string, secure *tls.Config) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil || secure == nil {
		return conn, err
	}
	over := tls.Client(conn, secure)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return visible{over, conn.(syscall.Conn)}, nil
}

// visible is a connection over TLS. go-redis sees whether the service has closed it while nobody used it.
type visible struct {
	*tls.Conn
	below syscall.Conn
}

func (v visible) SyscallConn() (syscall.RawConn, error) {
	return v.below.SyscallConn()
}
