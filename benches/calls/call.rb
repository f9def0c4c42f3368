# frozen_string_literal: true

# As call.c, in Ruby.
#
#     call.rb URL FETCHES LOOKUPS USERS

require 'libexperiment'

CONFIG = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: ARGV[0])
CLIENT = AmplitudeExperiment.initialize_remote('key', CONFIG)

def new_user = AmplitudeExperiment::User.new(user_id: 'user-1234', device_id: 'device-5678')

USER = new_user
VARIANTS = CLIENT.fetch_v2(USER)

def fetches(count) = count.times { CLIENT.fetch_v2(USER) }

def lookups(count) = count.times { VARIANTS['flag-one'].value }

def users(count) = count.times { new_user }

def now(clock) = Process.clock_gettime(clock, :float_second) * 1e9

def spent = [now(Process::CLOCK_PROCESS_CPUTIME_ID), GC.stat(:total_allocated_objects)]

def measure(what, batches, batch)
  before = spent
  took = Array.new(batches) do
    began = now(Process::CLOCK_MONOTONIC)
    yield batch
    (now(Process::CLOCK_MONOTONIC) - began) / batch
  end
  each = spent.zip(before).map { |after, earlier| (after - earlier).fdiv(batches * batch) }
  puts [what, took.sort[batches / 2], *each].join(' ')
end

fetches(20)
measure('fetch', Integer(ARGV[1]), 1) { |count| fetches(count) }
measure('lookup', Integer(ARGV[2]), 1000) { |count| lookups(count) }
measure('user', Integer(ARGV[3]), 1000) { |count| users(count) }
