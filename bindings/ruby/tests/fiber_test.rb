# frozen_string_literal: true

require_relative 'helper'
require 'async'

# With a Fiber scheduler a fetch holds up its fiber alone.
class FiberTest < ExperimentTest
  FETCHES = 50

  def slow(millis)
    { answers: [{ steps: [{ wait_millis: millis }, 'service'] }] }
  end

  def test_fifty_fetches_in_one_thread_take_the_time_of_one
    client = client(slow(300), connection_pool_max_size: FETCHES)
    own = assert_within(1.5) do # One after the other they would take 15 s.
      Async { Array.new(FETCHES) { Async { own_answer?(client) } }.map(&:wait) }.wait
    end
    assert_equal [true] * FETCHES, own
    assert_equal FETCHES, seen['connections_open_max']
  end

  def own_answer?(client)
    user, nonce = somebody
    client.fetch_v2!(user)['demo-nonce'].payload == nonce
  end

  def test_other_fibers_run_meanwhile
    client = client(STALLED, fetch_timeout_millis: 300)
    ticks = 0
    Async do |task|
      ticker = task.async { |own| loop { (ticks += 1) && own.sleep(0.01) } }
      client.fetch_v2(nil)
      ticker.stop
    end
    assert_operator ticks, :>, 5
  end

  def test_a_stopped_fiber_leaves_no_answer_behind
    client = client({ answers: [{ steps: ['hold'] }, {}] })
    Async do |task|
      stalled = task.async { client.fetch_v2!(nil) }
      task.sleep(0.01) until seen['requests_total'] == 1
      stalled.stop
      assert_own_answers(client, 20)
    end
    eventually('the first connection closed') { seen['connections_open'] == 1 }
  end

  # async 1 swallows its own error inside a wait; async 2 does not.
  def test_a_fiber_s_timeout_ends_the_fetch
    client = client({ answers: [{ steps: ['hold'] }, {}] })
    Async do |task|
      assert_within(0.1) do
        assert_raises(Async::TimeoutError, FetchError) { task.with_timeout(0.1) { client.fetch_v2!(nil) } }
      end
      assert_own_answers(client, 20)
    end
  end

  def test_asynchronous_fetches_and_closing_wait_as_fibers
    client = client(slow(200))
    ticks = 0
    Async do |task|
      ticker = task.async { |own| loop { (ticks += 1) && own.sleep(0.01) } }
      assert_equal 4, client.fetch_async_v2(nil).value.size
      assert client.close
      ticker.stop
    end
    assert_operator ticks, :>, 5
  end
end
