// Prints the dictionary, verified by Go's crypto/x509, trusting MY_CONFIG_CERT alone. Run with `go run client.go`.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "client.go:", err)
		os.Exit(1)
	}
}

func run() error {
	pem, err := os.ReadFile(os.Getenv("MY_CONFIG_CERT"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in MY_CONFIG_CERT")
	}
	// A transport of its own has no proxy, whatever the environment says.
	client := http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		Timeout:   10 * time.Second,
	}

	request, err := http.NewRequest(http.MethodGet, os.Getenv("MY_CONFIG_ENDPOINT"), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("MY_CONFIG_TOKEN"))
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return errors.New(reply.Status)
	}
	_, err = io.Copy(os.Stdout, reply.Body)
	return err
}
