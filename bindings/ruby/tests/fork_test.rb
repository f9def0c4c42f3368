# frozen_string_literal: true

require_relative 'helper'
require 'tempfile'

# A client works on in the parent and in children, and no answer goes to the wrong one.
class ForkTest < ExperimentTest
  def test_parent_and_child_get_their_own_answers_at_the_same_time
    client = client({}, connection_pool_max_size: 2)
    assert_own_answers(client, 5)
    children = Array.new(2) { in_child { own_answers(client, 200) } }
    assert_equal 200, own_answers(client, 200)
    children.each { |child, result| assert_equal 200, wait_for_child(child, result) }
    assert_own_answers(client, 5)
  end

  def own_answers(client, count)
    Array.new(4) { Thread.new { Array.new(count / 4) { own_answer?(client) } } }.flat_map(&:value).count(true)
  end

  def own_answer?(client)
    user, nonce = somebody
    client.fetch_v2!(user)['demo-nonce'].payload == nonce
  end

  def test_a_child_forked_while_threads_fetch_fetches_too
    client = client({ answers: [{ delay_millis: 5, json: { flag: {} } }] }, debug: true)
    fetching = Array.new(4) { Thread.new { loop { client.fetch_v2!(nil) } } }
    eventually('fetches') { seen['requests_total'] > 4 }
    30.times { assert_equal(%w[flag], wait_for_child(*in_child { client.fetch_v2!(nil).keys })) }
    fetching.each { |thread| assert_predicate thread.kill, :join }
  end

  def test_a_child_fetches_asynchronously
    client = client(VARIANT)
    client.fetch_async_v2(nil).value
    told = wait_for_child(*in_child do
      told = []
      client.fetch_async_v2(nil) { |_, variants| told << variants.keys }.value
      told
    end)
    assert_equal [%w[flag]], told
  end

  def test_a_fetch_of_the_parent_is_canceled_in_the_child_alone
    client = client({ answers: [{ delay_millis: 300, json: { flag: {} } }] })
    told = 0
    pending = client.fetch_async_v2(nil) { told += 1 }
    in_the_child = wait_for_child(*in_child do
      pending.join
      pending.cancel
      [assert_raises(FetchError) { pending.value }.status, pending.alive?, told]
    end)
    assert_equal ['EXP_ERR_CANCELED', false, 0], in_the_child
    assert_equal %w[flag], pending.value.keys
    assert_equal 1, told
  end

  def test_a_child_logs
    log = StringIO.new
    client = client({}, logger: Logger.new(log, level: Logger::DEBUG))
    client.fetch_v2!(nil)
    lines = wait_for_child(*in_child do
      log.truncate(0)
      Timeout.timeout(5) { client.fetch_v2!(nil) }
      log.string
    end)
    assert_includes lines, '[Experiment] fetch: 4 variants'
  end

  def test_a_child_collects_what_it_inherited
    client = client({})
    assert_own_answers(client, 1)
    parent = client
    child, result = in_child do
      client = nil
      parent = nil
      GC.start
      own = RemoteEvaluationClient.new('key', RemoteEvaluationConfig.new(server_url: @service['url'], logger: quiet))
      own_answers(own, 4)
    end
    assert_equal 4, wait_for_child(child, result)
    assert_own_answers(parent, 5)
  end

  # As the gem daemons does to what delayed_job runs in; the numbers then are those of the program's own files.
  # A program of its own: the objects that other tests leave behind close their numbers when they are collected.
  CLOSES_ALL = <<~'RUBY'
    child = fork do
      (3..255).each do |number|
        IO.for_fd(number).close
      rescue SystemCallError, ArgumentError
        nil # it is none, or Ruby's own
      end
      files = Array.new(40) { File.open('/proc/self/status') }
      numbers = files.map(&:fileno)
      20.times { client.fetch_v2!(nil) }
      client.fetch_async_v2(nil).value
      GC.start
      stay = numbers.all? { |number| File.readlink("/proc/self/fd/#{number}").end_with?('/status') }
      files.each(&:close)
      exit!(stay)
    end
    exit!(Process.wait2(child).last.success? && client.fetch_v2!(nil).keys == ['flag'])
  RUBY

  def test_a_child_that_closes_all_descriptors_keeps_the_files_that_it_opens_afterwards
    url = play({ answers: [{ json: { flag: { key: 'on', value: 'on' } } }] * 100 })
    source = <<~RUBY
      require 'libexperiment'
      config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{url.inspect}, connection_pool_max_size: 2)
      client = AmplitudeExperiment::RemoteEvaluationClient.new('key', config)
      Array.new(4) { client.fetch_async_v2(nil) }.each(&:value)
      #{CLOSES_ALL}
    RUBY
    output, status = run_ruby(source)
    assert_predicate status, :success?, output
  end

  def test_a_daemon_fetches_with_the_client_that_was_made_before
    output = Tempfile.create
    source = <<~RUBY
      require 'libexperiment'
      config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{play(VARIANT).inspect})
      client = AmplitudeExperiment::RemoteEvaluationClient.new('key', config)
      [client.fetch_v2!(nil), client.fetch_async_v2(nil).value]
      Process.daemon
      told = client.fetch_v2!(nil).keys + client.fetch_async_v2(nil).value.keys
      File.write(#{output.path.inspect}, told.inspect)
    RUBY
    _, status = run_ruby(source)
    assert_predicate status, :success?
    eventually('the daemon fetching') { File.read(output.path) == '["flag", "flag"]' }
  ensure
    File.unlink(output.path)
  end

  def test_a_program_that_is_spawned_gets_none_of_our_descriptors
    client = client({})
    2.times { client.fetch_async_v2(nil).value && client.fetch_v2!(nil) }
    [true, false].each do |close_others|
      listed = IO.popen(['ls', '-l', '/proc/self/fd', { close_others: }], &:read)
      refute_match(/eventfd|socket:/, listed)
    end
  end

  # A fork that Ruby does not see: of the process's number it would be the same.
  def test_inboxes_that_the_library_calls_the_parents_are_not_used
    client = client({})
    2.times { client.fetch_async_v2(nil).value && client.fetch_v2!(nil) }
    parents = ObjectSpace.each_object(AmplitudeExperiment.const_get(:Inbox)).to_a
    parents.each { |inbox| inbox.define_singleton_method(:inherited?) { true } }
    waited = []
    parents.each { |inbox| inbox.define_singleton_method(:wait) { waited << self } }
    assert_equal 4, own_answers(client, 4)
    assert_equal 4, Timeout.timeout(5) { client.fetch_async_v2(nil).value.size }
    assert_empty waited
  end

  def test_a_wait_that_the_library_calls_the_parents_ends
    inbox = AmplitudeExperiment.const_get(:Inbox).new
    Native.stub(:exp_completions_fd, -1) do
      assert_equal 'EXP_ERR_CANCELED', assert_raises(FetchError) { inbox.wait }.status
    end
  end
end
