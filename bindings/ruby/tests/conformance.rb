# frozen_string_literal: true

# Runs the cases of tests/conformance, each once for every way of fetching: tests/conformance/README.md.

require 'stringio'
require_relative 'mock'

# One run of one case in one way.
class Run
  include AmplitudeExperiment

  CASE = %w[name why client server creation steps requests connections logs except].freeze
  STEP = %w[user options fetch begins_after_millis cancel_after_millis gets within_millis not_before_millis].freeze
  VARIANT = %w[key value payload metadata].freeze
  GETS = %w[variants attempts error retryable http_status retry_after_millis phase message].freeze
  GRACE_MILLIS = 300 # What a busy machine may add to a bound.

  def initialize(mock, test, way)
    @mock = mock
    @case = test
    @way = way
    @log = StringIO.new
    @failures = Thread::Queue.new
  end

  # What went wrong, each in a line.
  def failures
    known(@case, CASE)
    script = @case.fetch('server', {})
    @plays = script.is_a?(Hash)
    @id, @url = @mock.order(@plays ? { play: script } : { script => true }).values_at('id', 'url')
    take_steps
    check_requests
    check_logs
    Array.new(@failures.size) { @failures.pop }
  ensure
    @mock.stop(@id) if @id
  end

  def expect(what, expected, got)
    @failures << "#{what}: expected #{expected.inspect}, got #{got.inspect}" unless expected == got
  end

  def expect_parts(what, parts, got)
    missing = parts.map { |part| filled(part) }.reject { |part| got.to_s.include?(part) }
    @failures << "#{what}: #{got.inspect} lacks #{missing}" unless missing.empty?
  end

  def known(object, fields)
    unknown = object.keys - fields
    raise "fields that this runner does not know: #{unknown}" unless unknown.empty?
  end

  def filled(value)
    return RemoteEvaluationConfig::NO_LIMIT if value == 'EXP_NO_LIMIT'
    return value unless value.is_a?(String)

    value.gsub('{url}', @url).gsub('{host}', @url.delete_prefix('http://')).gsub('{port}', @url[/\d+\z/])
  end

  def client
    settings = { 'server_url' => '{url}', 'api_key' => 'conformance-key', 'use_environment_proxy' => false }
    settings = settings.merge(@case.fetch('client', {})).compact.transform_values { |value| filled(value) }
    @api_key = settings.delete('api_key')
    @retries = settings.fetch('fetch_retries', 0)
    logger = Logger.new(@log, level: Logger::DEBUG, formatter: ->(level, _, _, line) { "#{level} #{line}\n" })
    RemoteEvaluationClient.new(@api_key, RemoteEvaluationConfig.new(logger:, **settings.transform_keys(&:to_sym)))
  end

  def take_steps
    @client = client
    return @failures << 'the client was made' if @case['creation']

    @case.fetch('steps').each_with_index do |step, index|
      [step].flatten.map { |one| Thread.new { take(one, "step #{index}") } }.each(&:value)
    end
  rescue Failure => e
    check_outcome('creation', @case.fetch('creation'), e, swallowed: false)
  end

  def take(step, where)
    sleep(step.fetch('begins_after_millis', 0) / 1e3)
    return @client.close(step['close']) if step['close']
    return sleep(step['sleep'] / 1e3) if step['sleep']

    known(step, STEP)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
    outcome, swallowed = fetch(step)
    millis = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) - began
    allowed = step.fetch('not_before_millis', 0)..(step.fetch('within_millis', 5_000) + GRACE_MILLIS)
    @failures << "#{where}: came back after #{millis} ms, not in #{allowed}" unless allowed.cover?(millis)
    check_outcome(where, step['gets'], outcome, swallowed:)
  end

  # @return the variants or the error, and whether an error was made empty variants
  def fetch(step)
    fields = step['user']&.transform_keys(&:to_sym)
    user = fields && (fields.keys - User::FIELDS).empty? ? User.new(**fields) : fields
    arguments = [user, options_of(step)]
    deployed = step['fetch'] == 'deployed'
    return fetch_async(deployed ? :fetch_async : :fetch_async_v2, arguments) if @way == :fetch_async_v2

    variants = @client.public_send(deployed ? :fetch : @way, *arguments)
    [variants.error || variants, !variants.error.nil?]
  rescue Failure => e
    [e, false]
  end

  def fetch_async(name, arguments)
    told = []
    @client.public_send(name, *arguments) { |*all| told << all }.join
    _, variants, error = told.first
    expect('what the block was told', [[arguments.first, error ? {} : variants, error]], told)
    [error || variants, false]
  end

  def options_of(step)
    return unless step['options'] || step['cancel_after_millis']

    cancel = Cancel.new
    Thread.new { sleep(step['cancel_after_millis'] / 1e3) && cancel.fire } if step['cancel_after_millis']
    FetchOptions.new(cancel:, **step.fetch('options', {}).transform_keys(&:to_sym))
  end

  def check_outcome(where, gets, outcome, swallowed:)
    known(gets, GETS)
    return check_variants(where, gets, outcome) if gets['variants'] && outcome.is_a?(Variants)
    return expect(where, gets, outcome) unless gets['error'] && outcome.is_a?(Failure)

    check_error(where, gets, outcome)
    may = gets['retryable'] && @retries.zero? && (@way == :fetch_v2 || swallowed)
    expect("#{where}: made the error empty variants", may, swallowed)
  end

  def check_variants(where, gets, outcome)
    sent = outcome.transform_values { |got| VARIANT.to_h { |name| [name, got.public_send(name)] }.compact }
    expect("#{where} variants", gets['variants'], sent)
    expect("#{where} attempts", gets['attempts'], outcome.attempts) if gets['attempts']
  end

  def check_error(where, gets, error)
    got = { 'error' => error.status, 'retryable' => error.retryable?, 'attempts' => error.attempts,
            'http_status' => error.status_code || 0, 'retry_after_millis' => ((error.retry_after || 0) * 1e3).round,
            'phase' => (error.phase || :none).to_s }
    got.each { |name, value| expect("#{where} #{name}", gets[name], value) if gets.key?(name) }
    expect_parts("#{where} message", gets.fetch('message', []), error.message)
    @log.puts("message #{error.message}") # To be looked through for the key.
  end

  def check_requests
    return unless @plays

    seen = @mock.seen(@id)
    expect('connections', @case['connections'], seen['connections_accepted']) if @case['connections']
    return unless (requests = @case['requests'])

    expect('requests', requests.size, seen['requests'].size)
    requests.zip(seen['requests']).each { |expected, got| check_request(expected, got || break) }
  end

  def check_request(expected, got)
    known(expected, %w[method path headers body])
    %w[method path].each { |name| expect(name, expected[name], got[name]) if expected[name] }
    headers = got['headers'].to_h.transform_keys(&:downcase)
    expected.fetch('headers', {}).each do |name, value|
      sent = headers[name.downcase]
      value.is_a?(Array) ? expect_parts(name, value, sent) : expect(name, filled(value), sent)
    end
    return unless (body = expected['body'])

    body = body.merge('library' => "libexperiment-ruby/#{VERSION}") if body['library'] == '{library}'
    expect('body', body, JSON.parse(got['body'], max_nesting: false))
  end

  def check_logs
    @case.fetch('logs', []).each do |log|
      lines = @log.string.lines.grep(/\A#{log['level']} /i)
      expect('log', log, lines.last(5)) if lines.none? { |line| log['message'].all? { |part| line.include?(part) } }
    end
    @failures << 'the log or a message has the key' if !@api_key.empty? && @log.string.include?(@api_key)
  end
end

files = Dir[File.join(__dir__, '../../../tests/conformance/*.json')]
cases = files.sort.flat_map { |file| JSON.parse(File.read(file), max_nesting: false) }
cases.select! { |test| test['name'].include?(ENV.fetch('CONFORMANCE_ONLY', '')) }
excepted, cases = cases.partition { |test| test.dig('except', 'ruby') }
excepted.each { |test| puts "excepted: #{test['name']}: #{test['except']['ruby']}" }
$stdout.sync = true
ways = %i[fetch_v2 fetch_v2! fetch_async_v2]
children = ways.map do |way| # At once, since most of the time goes into waiting; apart, so that it is not theirs.
  fork do
    mock = Mock.new
    lines = ->(test) { Run.new(mock, test, way).failures.each { |line| puts "#{test['name']} (#{way}): #{line}" } }
    exit!([cases.count { |test| lines[test].any? }, 255].min)
  end
end
failed = children.sum { |child| Process.wait2(child).last.exitstatus || 1 }
puts "conformance ruby: #{(cases.size * ways.size) - failed} passed, #{failed} failed, #{excepted.size} excepted"
exit cases.any? && failed.zero?
