# frozen_string_literal: true

require 'minitest/autorun'
require 'minitest/mock'
require 'securerandom'
require 'stringio'
require 'timeout'
require_relative 'mock'

# What the tests share. What a busy machine may add to a bound is GRACE, in seconds.
class ExperimentTest < Minitest::Test
  include AmplitudeExperiment

  GRACE = 0.3
  STALLED = { answers: [{ steps: ['hold'] }] }.freeze
  VARIANT = { answers: [{ json: { flag: { key: 'on', value: 'on' } } }] }.freeze
  PROGRAM = [RbConfig.ruby, '-W1', "-I#{File.expand_path('../lib', __dir__)}"].freeze

  MOCK = Mock.new

  def setup
    @services = []
  end

  def teardown
    @services.each { |id| MOCK.stop(id) }
  end

  # The URL of a service that plays a script, until the test is over.
  def play(script)
    @service = MOCK.play(script)
    @services << @service['id']
    @service['url']
  end

  # What the service that was played last has seen.
  def seen = MOCK.seen(@service['id'])

  def client(script = {}, **settings)
    RemoteEvaluationClient.new('key', RemoteEvaluationConfig.new(server_url: play(script), logger: quiet, **settings))
  end

  def quiet = Logger.new(StringIO.new, level: Logger::FATAL)

  # A user whom only this fetch can know, and whether the variants are his.
  def somebody
    nonce = SecureRandom.hex(8)
    [User.new(user_id: 'u', user_properties: { nonce: }), nonce]
  end

  def assert_own_answers(client, count)
    count.times do
      user, nonce = somebody
      assert_equal nonce, client.fetch_v2!(user)['demo-nonce'].payload
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Runs the block, which must come back within so many seconds.
  def assert_within(seconds)
    began = now
    result = yield
    assert_operator now - began, :<, seconds + GRACE
    result
  end

  # Waits for what must come to be true; a test that waits in vain fails.
  def eventually(what, seconds = 5)
    ends = now + seconds
    sleep 0.005 until yield || now > ends
    assert yield, "#{what} within #{seconds} s"
  end

  # What the block returns in a forked child, which ends without what is registered for the end.
  def in_child
    from_child, to_parent = IO.pipe
    child = fork do
      to_parent.write(Marshal.dump(begin
        yield
      rescue Exception => e # rubocop:disable Lint/RescueException
        "#{e.class}: #{e.message}"
      end))
      to_parent.close
      exit!(0)
    end
    to_parent.close
    [child, Thread.new { Marshal.load(from_child.read) }] # rubocop:disable Security/MarshalLoad
  end

  def wait_for_child(child, result)
    Timeout.timeout(30) { Process.wait(child) }
    result.value
  end

  # A program of its own: its output and status. One that hangs with the GVL in its hands is ended from outside.
  def run_ruby(source, environment = {})
    output, status = Open3.capture2e(environment, 'timeout', '--signal=KILL', '60', *PROGRAM, '-e', source)
    [output, status]
  end
end
