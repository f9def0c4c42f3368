# frozen_string_literal: true

# Fetches one user's variants and prints them as a table.
#
#     EXPERIMENT_API_KEY=… ruby fetch.rb USER_ID [TIMEOUT_MILLIS]
#
# EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.

require 'json'
require 'libexperiment'

def config(timeout_millis)
  settings = {
    server_url: ENV.fetch('EXPERIMENT_SERVER_URL', nil),
    fetch_timeout_millis: timeout_millis && Integer(timeout_millis)
  }
  AmplitudeExperiment::RemoteEvaluationConfig.new(**settings.compact)
end

def now_millis = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)

def print_variants(variants)
  table = "%-16s %-8s %-8s %s\n"
  printf table, 'FLAG', 'KEY', 'VALUE', 'PAYLOAD'
  variants.each do |flag_key, variant|
    payload = variant.payload && JSON.generate(variant.payload)
    printf table, flag_key, variant.key || '-', variant.value || '-', payload || '-'
  end
end

abort "usage: #{$PROGRAM_NAME} USER_ID [TIMEOUT_MILLIS]" unless [1, 2].include?(ARGV.size)
user_id, timeout_millis = ARGV

begin
  # One client for the whole program: every thread may fetch with it.
  client = AmplitudeExperiment.initialize_remote(ENV.fetch('EXPERIMENT_API_KEY', ''), config(timeout_millis))
  began = now_millis
  # Without the exclamation mark a stall would be empty variants: no retries are configured.
  print_variants(client.fetch_v2!(AmplitudeExperiment::User.new(user_id:)))
rescue AmplitudeExperiment::Failure => e
  warn "#{client ? user_id : 'no client'}: #{e.status}: #{e.message}"
  exit 1
ensure
  printf "came back after %.1f ms\n", now_millis - began if began
end
