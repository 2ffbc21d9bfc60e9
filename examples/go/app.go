// Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The pod's token: from the environment where the cluster can put it there, else from a file.
func token() (string, error) {
	if value := os.Getenv("MY_CONFIG_TOKEN"); value != "" {
		return value, nil
	}
	text, err := os.ReadFile(os.Getenv("MY_CONFIG_TOKEN_FILE"))
	return strings.TrimSpace(string(text)), err
}

// A client that trusts only the pod's own authority. It uses no proxy: the agent is in this pod.
func client() (*http.Client, error) {
	certificate, err := os.ReadFile(os.Getenv("MY_CONFIG_CERT"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}

// Fetches the dictionary and prints what this application wants from it.
func show(client *http.Client, token string) error {
	request, err := http.NewRequest("GET", os.Getenv("MY_CONFIG_ENDPOINT"), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if container := os.Getenv("MY_CONFIG_CONTAINER"); container != "" {
		request.Header.Set("Nudge-Container", container)
	}
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answers %s", reply.Status)
	}
	config := map[string]string{}
	if err := json.NewDecoder(reply.Body).Decode(&config); err != nil {
		return err
	}
	fmt.Printf("pid %d: %s greeting=%s lives=%s\n", os.Getpid(), config["nudge.configs"], config["greeting"], config["lives"])
	return nil
}

func main() {
	// Before the first fetch, so that no change between the two is missed. One signal that waits is enough: what is
	// fetched after it is the newest.
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGUSR1)

	token, err := token()
	var agent *http.Client
	if err == nil {
		agent, err = client()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		// On failure the agent may be restarting: keep the old configuration and try again.
		for err := show(agent, token); err != nil; err = show(agent, token) {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(time.Second)
		}
		<-changed
	}
}
