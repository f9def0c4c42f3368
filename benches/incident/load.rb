# frozen_string_literal: true

# As load.py, with the Ruby binding.
#
#     load.rb URL RATE SECONDS [SETTING=VALUE ...]

require 'json'
require 'libexperiment'

URL = ARGV.shift
RATE = Float(ARGV.shift)
SECONDS = Float(ARGV.shift)
SETTINGS = ARGV.to_h { |word| word.split('=').then { |name, value| [name.to_sym, Integer(value)] } }
CONFIG = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: URL, logger: Logger.new(nil), **SETTINGS)
CLIENT = AmplitudeExperiment.initialize_remote('key', CONFIG)

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def outcome
  CLIENT.fetch_v2(AmplitudeExperiment::User.new(user_id: 'user')).empty? ? 'empty' : 'ok'
rescue AmplitudeExperiment::Failure
  'error'
end

def call(number)
  start = Time.now.to_f * 1000
  began = now
  what = outcome
  puts JSON.generate({ call: number, start:, elapsed: (now - began) * 1000, outcome: what })
end

$stdout.sync = true
20.times { outcome }
puts 'ready'
$stdin.gets
begin_at = now
threads = Array.new(Integer(RATE * SECONDS)) do |number|
  sleep([0, begin_at + (number / RATE) - now].max)
  Thread.new { call(number) }
end
threads.each(&:join)
