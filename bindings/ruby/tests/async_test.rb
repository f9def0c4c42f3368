# frozen_string_literal: true

require_relative 'helper'

# What fetch_async_v2 returns and whom it tells.
class AsyncTest < ExperimentTest
  def test_the_block_is_called_once_with_the_user_and_his_variants
    told = []
    user = User.new(user_id: 'u')
    pending = client(VARIANT).fetch_async_v2(user) { |*all| told << all }
    assert_same pending, pending.join
    assert_equal [[user, pending.value, nil]], told
    assert_equal %w[flag], pending.value.keys
    refute_predicate pending, :alive?
  end

  def test_the_block_is_told_of_errors
    told = []
    pending = client({ answers: [{ status: 404 }] }).fetch_async_v2(nil) { |*all| told << all }
    error = assert_raises(FetchError) { pending.value }
    assert_equal [[nil, {}, error]], told
  end

  def test_a_lambda_of_two_is_given_two
    told = []
    [{ status: 404 }, { json: {} }].each do |answer|
      callback = ->(user, variants) { told << [user, variants] }
      client({ answers: [answer] }).fetch_async_v2('user_id' => 'u', &callback).join
    end
    assert_equal [[{ 'user_id' => 'u' }, {}]] * 2, told
  end

  def test_a_block_that_raises_is_called_once_and_logged
    calls = 0
    log = StringIO.new
    client = client(VARIANT, logger: Logger.new(log, level: Logger::ERROR))
    pending = client.fetch_async_v2(nil) { (calls += 1) && raise('of the block') }
    assert_equal %w[flag], pending.value.keys
    assert_equal 1, calls
    assert_includes log.string, 'of the block'
  end

  def test_a_slow_block_delays_nobody
    client = client(VARIANT)
    slow = client.fetch_async_v2(nil) { sleep 1 }
    assert_within(0.2) { client.fetch_async_v2(nil).value }
    assert_predicate slow, :alive?
    assert_nil slow.join(0)
    assert slow.join
  end

  def test_a_block_may_fetch_and_wait
    client = client(VARIANT)
    inner = nil
    client.fetch_async_v2(nil) { inner = [client.fetch_v2(nil), client.fetch_async_v2(nil).value] }.join
    assert_equal [%w[flag]] * 2, inner.map(&:keys)
  end

  def test_a_block_that_waits_for_its_own_fetch_is_told
    told = Thread::Queue.new
    pending = nil
    pending = client({ answers: [{ delay_millis: 50, json: {} }] }).fetch_async_v2(nil) do
      told << assert_raises(ThreadError) { pending.value }
    end
    assert_within(0.1) { pending.join }
    assert_match(/its own fetch/, told.pop.message)
  end

  def test_join_waits_no_longer_than_told
    pending = client(STALLED, fetch_timeout_millis: 5_000).fetch_async_v2(nil)
    assert_nil(assert_within(0.1) { pending.join(0.1) })
    assert_predicate pending, :alive?
    pending.cancel
    assert_equal 'EXP_ERR_CANCELED', assert_within(0.1) { assert_raises(FetchError) { pending.value } }.status
  end

  def test_a_switch_ends_all_fetches_that_carry_it
    client = client(STALLED)
    cancel = Cancel.new
    pendings = Array.new(3) { client.fetch_async_v2(nil, FetchOptions.new(cancel:)) }
    cancel.fire
    assert_within(0.1) { pendings.each { |pending| assert_raises(FetchError) { pending.value } } }
    assert_raises(FetchError) { client.fetch_v2(nil, FetchOptions.new(cancel:)) }
  end

  def test_many_at_once_get_their_own_answers_and_leave_no_thread
    client = client({}, connection_pool_max_size: 16)
    threads = Thread.list
    fetches = Array.new(500) { somebody.then { |user, nonce| [client.fetch_async_v2(user), nonce] } }
    assert_operator (Thread.list - threads).size, :<=, 1
    fetches.each { |pending, nonce| assert_equal nonce, pending.value['demo-nonce'].payload }
    eventually('no thread left') { (Thread.list - threads).empty? }
  end

  def test_a_fetch_that_cannot_start_leaves_nothing_to_wait_for
    client = client(VARIANT)
    threads = Thread.list
    assert_raises(NoMethodError) { client.fetch_async_v2(nil, FetchOptions.new(cancel: 'no switch')) }
    assert_equal %w[flag], client.fetch_async_v2(nil).value.keys
    eventually('no thread left') { (Thread.list - threads).empty? }
  end

  def test_a_block_is_called_though_the_system_has_no_thread_left
    told = []
    pending = client({ answers: [{ delay_millis: 100, json: {} }] }).fetch_async_v2(nil) { |*all| told << all }
    Thread.stub(:new, ->(*) { raise ThreadError, 'none left' }) { assert pending.join(5) }
    assert_equal [[nil, {}, nil]], told
  end

  def test_more_than_allowed_are_refused
    client = client(STALLED, max_pending_fetches: 2)
    pendings = Array.new(2) { client.fetch_async_v2(nil) }
    assert_equal 'EXP_ERR_QUEUE_FULL', assert_raises(FetchError) { client.fetch_async_v2(nil) }.status
    assert_equal 'EXP_ERR_QUEUE_FULL', assert_raises(FetchError) { client.fetch_v2(nil) }.status
    pendings.each(&:cancel)
  end

  def test_a_killed_dispatcher_is_replaced
    client = client({ answers: [{ delay_millis: 100, json: { flag: {} } }] })
    pending = client.fetch_async_v2(nil)
    Thread.list.find { |thread| thread.name == 'AmplitudeExperiment' }.kill.join
    client.fetch_async_v2(nil).value
    assert_equal %w[flag], pending.value.keys
  end
end
