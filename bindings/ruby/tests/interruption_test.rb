# frozen_string_literal: true

require_relative 'helper'

# Whoever waits for a fetch can be interrupted by all that Ruby has, and no answer is left behind for others.
class InterruptionTest < ExperimentTest
  # The first answer never ends, the others echo who asked.
  FIRST_STALLS = { answers: [{ steps: ['hold'] }, {}] }.freeze

  def in_thread(client)
    thread = Thread.new { client.fetch_v2!(nil) }
    thread.report_on_exception = false
    eventually('a request') { seen['requests_total'] == 1 }
    thread
  end

  def test_other_threads_run_while_a_fetch_waits
    client = client(STALLED, fetch_timeout_millis: 300)
    counted = 0
    counter = Thread.new { loop { (counted += 1) && sleep(0.01) } }
    client.fetch_v2(nil)
    counter.kill
    assert_operator counted, :>, 5
  end

  def test_timeout_interrupts
    client = client(FIRST_STALLS)
    assert_within(0.1) { assert_raises(Timeout::Error) { Timeout.timeout(0.1) { client.fetch_v2!(nil) } } }
    assert_own_answers(client, 20)
  end

  def test_thread_kill_interrupts
    client = client(FIRST_STALLS)
    thread = in_thread(client)
    assert_within(0.1) { thread.kill.join }
    assert_own_answers(client, 20)
  end

  def test_thread_raise_interrupts
    client = client(FIRST_STALLS)
    thread = in_thread(client)
    thread.raise(IOError, 'enough')
    assert_equal 'enough', assert_within(0.1) { assert_raises(IOError) { thread.join } }.message
    assert_own_answers(client, 20)
  end

  def test_an_interrupted_fetch_ends_and_gives_its_connection_up
    client = client(FIRST_STALLS, connection_pool_max_size: 1)
    in_thread(client).kill
    eventually('the connection closed') { seen['connections_open'].zero? }
    assert_own_answers(client, 1)
    assert_equal 1, client.metrics['failures'].fetch('canceled')
  end

  def test_ctrl_c_interrupts_within_100_ms
    source = <<~RUBY
      require 'libexperiment'
      config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{play(STALLED).inspect})
      client = AmplitudeExperiment::RemoteEvaluationClient.new('key', config)
      trap('INT', 'DEFAULT') # it is ignored in what a shell runs in the background
      $stdout.sync = true
      puts 'ready'
      begin
        client.fetch_v2!(nil)
      rescue Interrupt
        puts 'interrupted'
      end
    RUBY
    Open3.popen2(*PROGRAM, '-e', source) do |_, output, program|
      assert_equal "ready\n", output.gets
      eventually('a request') { seen['requests_total'] == 1 }
      Process.kill('INT', program.pid)
      assert_equal "interrupted\n", assert_within(0.1) { output.gets }
    end
  end

  # Interrupts hit every line on a fetch's way. None may leave an answer for the next fetch of any thread.
  def test_answers_are_never_crossed_by_interrupts_at_any_moment
    client = client({}, connection_pool_max_size: 4)
    failures = Thread::Queue.new
    descriptors = Dir.children('/proc/self/fd').size
    workers = Array.new(4) { Thread.new { fetch_interrupted(client, failures) } }
    eventually('fetches') { workers.all? { |worker| worker[:own].to_i > 5 } }
    ends = now + 2
    (workers.sample.raise(IOError, 'now') || sleep(0.0004)) while now < ends
    workers.each { |worker| join_interrupted(worker) }
    assert_empty Array.new(failures.size) { failures.pop }
    assert_operator workers.sum { |worker| worker[:own] }, :>, 50
    assert_operator workers.sum { |worker| worker[:interrupted] }, :>, 50
    assert_own_answers(client, 20)
    assert_operator Dir.children('/proc/self/fd').size - descriptors, :<, 30
  end

  # One last interrupt may still have been under way when the thread ended.
  def join_interrupted(worker)
    worker.report_on_exception = false
    worker[:stop] = true
    worker.join
  rescue IOError
    nil
  end

  def fetch_interrupted(client, failures)
    thread = Thread.current
    thread[:own] = thread[:interrupted] = 0
    # The test's own lines are not to be interrupted, only the fetch.
    Thread.handle_interrupt(IOError => :never) do
      until thread[:stop]
        user, nonce = somebody
        begin
          got = Thread.handle_interrupt(IOError => :immediate) { client.fetch_v2!(user)['demo-nonce'].payload }
          got == nonce ? thread[:own] += 1 : failures << [nonce, got]
        rescue IOError
          thread[:interrupted] += 1
        end
      end
    end
  end
end
