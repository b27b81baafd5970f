package weir

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// authority signs certificates for localhost.
type authority struct {
	t           *testing.T
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	a.issue("ca")
	return a
}

// issue returns the files of a certificate and its key.
func (a *authority) issue(name string) (string, string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signed := a.key, a.certificate
	if signer == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage, template.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		template.DNSNames = nil
		a.key, a.certificate, signer, signed = key, template, key, template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signed, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.folder, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *authority) file() string { return filepath.Join(a.folder, "ca.crt") }

func secure(s *service) string { return strings.Replace(s.address, "127.0.0.1", "localhost", 1) }

func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	certificate, key := ca.issue("server")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--certificate", certificate, "--certificate-key", key, "--token-file", token).start()
	url := "rediss://:a-token-of-some-length@" + secure(s) + "?ssl_ca_certs="
	client := connect(t, url+ca.file(), Options{Deadline: ample})
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(1), "over TLS")
	s.end(syscall.SIGTERM)
	s.start()
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(0), "a restart between two calls goes unnoticed")
	expect(t, client.Unreachable(), uint64(0), "unreachable")
	// Whoever answers without the right certificate gets no token, and decides nothing.
	stranger := connect(t, url+other.file(), Options{Deadline: ample})
	expect(t, check(t, stranger, Request{Event: "ocr", Key: "u"}).Unavailable, true, "another authority")
}

func TestClientCertificates(t *testing.T) {
	ca := newAuthority(t)
	certificate, key := ca.issue("server")
	own, ownKey := ca.issue("client")
	s := serve(t, "--certificate", certificate, "--certificate-key", key, "--resp-tls", "clients", "--client-authorities", ca.file()).start()
	url := "rediss://" + secure(s) + "?ssl_ca_certs=" + ca.file()
	client := connect(t, url+"&ssl_certfile="+own+"&ssl_keyfile="+ownKey, Options{Deadline: ample})
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(1), "with a certificate")
	without := connect(t, url, Options{Deadline: ample})
	expect(t, check(t, without, Request{Event: "ocr", Key: "u"}).Unavailable, true, "without one")
}
