# frozen_string_literal: true

# As load.py, with the Ruby binding.
#
#     load.rb URL RATE SECONDS [SETTING=VALUE ...]        RATE may be such as `16x5`

require 'json'
require 'libexperiment'

URL = ARGV.shift
RATE = ARGV.shift
SECONDS = Float(ARGV.shift)
SETTINGS = ARGV.to_h { |word| word.split('=').then { |name, value| [name.to_sym, Integer(value)] } }
ONLY_SLEEP = SETTINGS.delete(:only_sleep)
CONFIG = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: URL, logger: Logger.new(nil), **SETTINGS)
CLIENT = AmplitudeExperiment.initialize_remote('key', CONFIG)

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def outcome
  return 'ok' if ONLY_SLEEP && sleep(ONLY_SLEEP / 1000.0)

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

def at_rate(rate)
  begin_at = now
  Array.new(Integer(rate * SECONDS)) do |number|
    sleep([0, begin_at + (number / rate) - now].max)
    Thread.new { call(number) }
  end
end

def in_turns(callers, each)
  Array.new(callers) do |caller|
    Thread.new { each.times { |turn| call((caller * each) + turn) } }
  end
end

$stdout.sync = true
20.times { outcome } unless ONLY_SLEEP
puts 'ready'
exit unless $stdin.gets # whoever started it is gone
threads = RATE.include?('x') ? in_turns(*RATE.split('x').map(&:to_i)) : at_rate(Float(RATE))
threads.each(&:join)
