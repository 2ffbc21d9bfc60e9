#!/usr/bin/env ruby
# Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1.

# First of all: until then Ruby has a handler of its own, which ends the program. The pipe keeps a signal that comes a
# moment before the wait.
wake, waker = IO.pipe
Signal.trap("USR1") { waker.write_nonblock(".", exception: false) }
%w[TERM INT].each { |stop| Signal.trap(stop) { exit } }

require "json"
require "net/http"

# From the environment where the cluster can put it there, else from a file.
token = ENV.fetch("MY_CONFIG_TOKEN", "")
token = File.read(ENV.fetch("MY_CONFIG_TOKEN_FILE")) if token.empty?
HEADERS = { "Authorization" => "Bearer #{token}", "Nudge-Container" => ENV["MY_CONFIG_CONTAINER"] }.compact
ENDPOINT = URI(ENV.fetch("MY_CONFIG_ENDPOINT"))

# Fetches the dictionary and prints what this application wants from it.
def show
  # Trusts only the pod's own authority. Uses no proxy, whatever the environment says: the agent is in this pod.
  agent = Net::HTTP.new(ENDPOINT.host, ENDPOINT.port, nil)
  agent.use_ssl = true
  agent.ca_file = ENV.fetch("MY_CONFIG_CERT")
  agent.read_timeout = 10
  reply = agent.get(ENDPOINT.request_uri, HEADERS)
  raise "the agent answers #{reply.code}" unless reply.is_a?(Net::HTTPSuccess)

  config = JSON.parse(reply.body)
  puts "pid #{Process.pid}: #{config["nudge.configs"]} greeting=#{config["greeting"]} lives=#{config["lives"]}"
  $stdout.flush
end

show
loop do
  wake.readpartial(1024)
  begin
    show
  rescue StandardError => error
    # The agent may be restarting: keep the old configuration and try again.
    warn error.message
    sleep 1
    retry
  end
end
