# frozen_string_literal: true

require_relative 'helper'

# Memory, the log, the end of the process, and what else Ruby's insides may do to a client.
class ObjectTest < ExperimentTest
  def test_fetches_survive_collections_at_every_moment
    client = client(VARIANT)
    options = FetchOptions.new(flag_keys: ['flag'], cancel: Cancel.new)
    GC.stress = true
    got = [client.fetch_v2!(nil, options), client.fetch_async_v2(nil).value]
    GC.stress = false
    assert_equal [%w[flag]] * 2, got.map(&:keys)
  ensure
    GC.stress = false
  end

  def test_a_client_that_nobody_refers_to_is_freed
    # Made on a thread that ends: what is left on a stack would keep them.
    Thread.new { 20.times { client(VARIANT).fetch_v2(nil) } }.join
    eventually('connections closed') { GC.start || open_services <= 2 }
  end

  def open_services = @services.count { |id| MOCK.seen(id)['connections_open'] == 1 }

  def test_many_fetches_leave_neither_memory_nor_descriptors
    client = client({})
    before = nil
    3.times do |round|
      1_000.times { client.fetch_v2!(nil) }
      GC.start
      before ||= [resident_kib, Dir.children('/proc/self/fd').size] if round == 1
    end
    assert_operator resident_kib - before[0], :<, 4_096
    assert_operator Dir.children('/proc/self/fd').size - before[1], :<=, 2
  end

  def resident_kib = File.read('/proc/self/status')[/VmRSS:\s+(\d+)/, 1].to_i

  def test_a_logger_gets_what_its_level_asks_for
    { debug: 'DEBUG [Experiment] fetch: 1 variants', warn: 'WARN [Experiment] skipped 1 entries of responses' }
      .each do |level, line|
        log = StringIO.new
        format = ->(severity, _, _, message) { "#{severity} #{message}\n" }
        logger = Logger.new(log, level:, formatter: format)
        client({ answers: [{ json: { flag: {}, other: 1 } }] }, logger:).fetch_v2(nil)
        assert_includes log.string, line
        assert_equal level == :debug, log.string.include?('DEBUG')
      end
  end

  def test_a_logger_of_errors_hears_of_variants_that_could_not_be_had
    log = StringIO.new
    client({ answers: [{ status: 503 }] }, logger: Logger.new(log, level: Logger::ERROR)).fetch_v2(nil)
    assert_match(/ERROR.*no variants: .*503/, log.string)
  end

  def test_lines_are_written_by_the_thread_that_fetches_and_have_nothing_of_the_user_or_the_key
    lines = []
    format = ->(_, _, _, line) { (lines << [Thread.current, line]) && '' }
    client = client({ answers: [{ status: 400 }] }, debug: true, logger: Logger.new(StringIO.new, formatter: format))
    assert_raises(FetchError) { client.fetch_v2(User.new(user_id: 'ada@company.com')) }
    assert_equal [Thread.current], lines.map(&:first)
    refute_match(/ada|key/, lines.first.last)
  end

  def test_debug_turns_the_logger_up
    log = StringIO.new
    client(VARIANT, debug: true, logger: Logger.new(log, level: Logger::FATAL)).fetch_v2(nil)
    assert_includes log.string, 'DEBUG'
  end

  def test_a_logger_that_raises_fails_no_fetch
    logger = Logger.new(StringIO.new, formatter: ->(*) { raise 'no paper' })
    _, complaint = capture_io { assert_equal 1, client(VARIANT, logger:).fetch_v2!(nil).size }
    assert_includes complaint, 'no paper'
  end

  def test_the_vendors_connect_timeout_is_said_to_have_no_effect
    log = StringIO.new
    client(VARIANT, connect_timeout_millis: 100, logger: Logger.new(log, level: Logger::WARN))
    assert_includes log.string, 'connect_timeout_millis has no effect'
  end

  def test_a_logger_at_debug_that_takes_its_time_holds_up_no_other_thread
    logger = Logger.new(StringIO.new, formatter: ->(*) { sleep(0.2) && '' })
    threads = Array.new(4) { Thread.new { client(VARIANT, logger:).fetch_v2!(nil).size } }
    assert_within(1.5) { assert_equal [1] * 4, threads.map(&:value) }
  end

  # Ruby's threads submit, cancel, free and close at once, and log everything.
  def test_clients_that_come_and_go_under_load_never_lock_up
    source = <<~RUBY
      require 'libexperiment'
      include AmplitudeExperiment
      logger = Logger.new(StringIO.new, level: :debug)
      workers = Array.new(8) do
        Thread.new do
          20.times do
            config = RemoteEvaluationConfig.new(server_url: #{play({}).inspect}, logger:, connection_pool_max_size: 2)
            client = RemoteEvaluationClient.new('key', config)
            pendings = Array.new(10) { client.fetch_async_v2(nil) }
            pendings.each_slice(2) { |one, _| one.cancel }
            5.times { client.fetch_v2!(nil) }
            GC.start if rand(4).zero?
            client.close(rand(3)) if rand(2).zero?
            pendings.each(&:join)
          end
        end
      end
      workers.each(&:join)
      puts 'end'
    RUBY
    output, status = run_ruby("require 'stringio'; #{source}")
    assert_predicate status, :success?, output
    assert_equal "end\n", output
  end

  # A signal handler may fetch, but not wait for locks.
  def test_a_signal_handler_fetches
    client = client(VARIANT)
    got = []
    before = trap('USR1') { got << client.fetch_v2!(nil).keys }
    Process.kill('USR1', Process.pid)
    eventually('a fetch') { got == [%w[flag]] }
    trap('USR1') { got << assert_raises(ThreadError) { client.fetch_async_v2(nil) } }
    Process.kill('USR1', Process.pid)
    eventually('a refusal') { got.size == 2 }
  ensure
    trap('USR1', before)
  end

  def test_the_first_fetch_of_a_process_may_be_a_signal_handlers
    source = <<~RUBY
      require 'libexperiment'
      config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{play(VARIANT).inspect})
      client = AmplitudeExperiment::RemoteEvaluationClient.new('key', config)
      trap('USR1') { puts client.fetch_v2!(nil).keys }
      Process.kill('USR1', Process.pid)
      sleep 0.5
    RUBY
    output, status = run_ruby(source)
    assert_predicate status, :success?, output
    assert_equal "flag\n", output
  end

  # Blocks that are still to be called are not; nothing hangs.
  def test_a_process_ends_while_fetches_are_pending
    source = <<~RUBY
      require 'libexperiment'
      config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{play(STALLED).inspect},
                                                               logger: Logger.new($stdout, level: :debug))
      client = AmplitudeExperiment::RemoteEvaluationClient.new('key', config)
      3.times { client.fetch_async_v2(nil) { puts 'called' } }
      Thread.new { client.fetch_v2(nil) }
      sleep 0.1
      puts 'end'
    RUBY
    output, status = assert_within(2) { run_ruby(source) }
    assert_predicate status, :success?, output
    assert_equal "end\n", output
  end

  # ffi 1.15 knows nothing of Ractors; later ones may.
  def test_a_ractor_fetches_or_is_told_that_it_cannot
    source = <<~RUBY
      require 'libexperiment'
      ractor = Ractor.new do
        config = AmplitudeExperiment::RemoteEvaluationConfig.new(server_url: #{play(VARIANT).inspect})
        AmplitudeExperiment::RemoteEvaluationClient.new('key', config).fetch_v2!(nil).keys
      rescue Ractor::Error => e
        e.class
      end
      puts ractor.take
    RUBY
    output, status = run_ruby(source)
    assert_predicate status, :success?, output
    assert_match(/flag|Ractor::/, output)
  end
end
