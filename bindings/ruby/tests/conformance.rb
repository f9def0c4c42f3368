# frozen_string_literal: true

# Runs the cases of tests/conformance, each once for every way of fetching: tests/conformance/README.md.

require 'stringio'
require 'libexperiment'
require_relative 'mock'

# One run of one case in one way.
class Run
  include AmplitudeExperiment

  CASE = %w[name why client server creation steps requests connections logs except].freeze
  STEP = %w[user options fetch begins_after_millis cancel_after_millis gets within_millis not_before_millis].freeze
  OPTIONS = %w[tracks_assignment tracks_exposure flag_keys deadline_millis].freeze
  GETS = %w[variants attempts error retryable http_status retry_after_millis phase message].freeze
  # What a busy machine may add to a bound.
  GRACE_MILLIS = 300

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
    start_server
    @case['creation'] ? expect_no_client : take_steps
    check_requests
    check_logs
    Array.new(@failures.size) { @failures.pop }
  ensure
    @mock.stop(@id) if @id
  end

  private

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

  def start_server
    script = @case.fetch('server', {})
    @id, @url = (script.is_a?(String) ? @mock.order(script => true) : @mock.play(script)).values_at('id', 'url')
  end

  def filled(value)
    return RemoteEvaluationConfig::NO_LIMIT if value == 'EXP_NO_LIMIT'
    return value unless value.is_a?(String)

    host = @url.delete_prefix('http://')
    value.gsub('{url}', @url).gsub('{host}', host).gsub('{port}', host[/\d+\z/])
  end

  def client
    settings = { 'server_url' => '{url}', 'api_key' => 'conformance-key', 'use_environment_proxy' => false }
    settings = settings.merge(@case.fetch('client', {})).compact.transform_values { |value| filled(value) }
    @api_key = settings.delete('api_key')
    @retries = settings.fetch('fetch_retries', 0)
    logger = Logger.new(@log, level: Logger::DEBUG, formatter: ->(level, _, _, line) { "#{level} #{line}\n" })
    config = RemoteEvaluationConfig.new(logger:, **settings.transform_keys(&:to_sym))
    RemoteEvaluationClient.new(@api_key, config)
  end

  def expect_no_client
    client
    @failures << 'creation: the client was made'
  rescue Failure => e
    check_error('creation', @case['creation'], e)
  end

  def take_steps
    @client = client
    @case.fetch('steps').each_with_index do |step, index|
      at_once = step.is_a?(Array) ? step : [step]
      at_once.map { |one| Thread.new { take(one, "step #{index}") } }.each(&:value)
    end
  end

  def take(step, where)
    sleep(step.fetch('begins_after_millis', 0) / 1e3)
    return @client.close(step['close']) if step['close']
    return sleep(step['sleep'] / 1e3) if step['sleep']

    known(step, STEP)
    began = now_millis
    outcome, swallowed = fetch(step)
    check_time(where, step, now_millis - began)
    check_outcome(where, step['gets'], outcome, swallowed)
  end

  def now_millis = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)

  def check_time(where, step, millis)
    allowed = step.fetch('not_before_millis', 0)..(step.fetch('within_millis', 5_000) + GRACE_MILLIS)
    @failures << "#{where}: came back after #{millis} ms, not in #{allowed}" unless allowed.cover?(millis)
  end

  # @return the variants or the error, and whether an error was made empty variants
  def fetch(step)
    user = user_of(step['user'])
    options = options_of(step)
    @way == :fetch_async_v2 ? fetch_async(step, user, options) : fetch_blocking(step, user, options)
  rescue Failure => e
    [e, false]
  end

  def user_of(fields)
    fields = fields&.transform_keys(&:to_sym)
    fields && (fields.keys - User::FIELDS).empty? ? User.new(**fields) : fields
  end

  def options_of(step)
    return unless step['options'] || step['cancel_after_millis']

    options = step.fetch('options', {})
    known(options, OPTIONS)
    cancel = Cancel.new
    Thread.new { sleep(step['cancel_after_millis'] / 1e3) && cancel.fire } if step['cancel_after_millis']
    FetchOptions.new(cancel:, **options.transform_keys(&:to_sym))
  end

  def fetch_blocking(step, user, options)
    name = step['fetch'] == 'deployed' ? :fetch : @way
    variants = @client.public_send(name, user, options)
    [variants.error || variants, !variants.error.nil?]
  end

  def fetch_async(step, user, options)
    told = []
    name = step['fetch'] == 'deployed' ? :fetch_async : :fetch_async_v2
    @client.public_send(name, user, options) { |*all| told << all }.join
    expect('calls of the block', 1, told.size)
    told_user, variants, error = told.first
    expect('the user told', user, told_user)
    expect('variants beside an error', {}, variants) if error
    [error || variants, false]
  end

  def check_outcome(where, gets, outcome, swallowed)
    known(gets, GETS)
    return check_variants(where, gets, outcome) if gets['variants']
    return @failures << "#{where}: expected #{gets['error']}, got #{outcome}" unless outcome.is_a?(Failure)

    check_error(where, gets, outcome)
    sdk_call = @way == :fetch_v2 || (@way == :fetch_v2! && swallowed)
    expect("#{where}: made the error empty variants", sdk_call && gets['retryable'] && @retries.zero?, swallowed)
  end

  def check_variants(where, gets, outcome)
    return @failures << "#{where}: expected variants, got #{outcome.inspect}" unless outcome.is_a?(Variants)

    fields = %w[key value payload metadata]
    sent = outcome.transform_values { |variant| fields.to_h { |name| [name, variant.public_send(name)] }.compact }
    expect("#{where} variants", gets['variants'], sent)
    expect("#{where} attempts", gets['attempts'], outcome.attempts) if gets['attempts']
  end

  def check_error(where, gets, error)
    got = { 'error' => error.status, 'retryable' => error.retryable?, 'attempts' => error.attempts,
            'http_status' => error.status_code || 0, 'retry_after_millis' => ((error.retry_after || 0) * 1e3).round,
            'phase' => (error.phase || :none).to_s }
    got.each { |name, value| expect("#{where} #{name}", gets[name], value) if gets.key?(name) }
    expect_parts("#{where} message", gets.fetch('message', []), error.message)
    @failures << "#{where}: the message has the key" if !@api_key.empty? && error.message.include?(@api_key)
  end

  def check_requests
    seen = @id ? @mock.seen(@id) : { 'requests' => [], 'connections_accepted' => 0 }
    expect('connections', @case['connections'], seen['connections_accepted']) if @case['connections']
    return unless @case['requests']

    expect('requests', @case['requests'].size, seen['requests'].size)
    @case['requests'].zip(seen['requests']).each { |expected, got| check_request(expected, got) if got }
  end

  def check_request(expected, got)
    known(expected, %w[method path headers body])
    %w[method path].each { |name| expect(name, expected[name], got[name]) if expected[name] }
    headers = got['headers'].to_h.transform_keys(&:downcase)
    expected.fetch('headers', {}).each do |name, value|
      sent = headers[name.downcase]
      value.is_a?(Array) ? expect_parts(name, value, sent) : expect(name, filled(value), sent)
    end
    expect('body', with_library(expected['body']), JSON.parse(got['body'], max_nesting: false)) if expected['body']
  end

  def with_library(body)
    body['library'] == '{library}' ? body.merge('library' => "libexperiment-ruby/#{VERSION}") : body
  end

  def check_logs
    @case.fetch('logs', []).each do |log|
      lines = @log.string.lines.grep(/\A#{log['level']} /i)
      found = lines.any? { |line| log['message'].all? { |part| line.include?(part) } }
      @failures << "the log lacks #{log}; it has #{lines.last(5)}" unless found
    end
    @failures << 'the log has the key' if !@api_key.empty? && @log.string.include?(@api_key)
  end
end

mock = Mock.new
files = Dir[File.join(__dir__, '../../../tests/conformance/*.json')]
cases = files.sort.flat_map { |file| JSON.parse(File.read(file), max_nesting: false) }
cases.select! { |test| test['name'].include?(ENV.fetch('CONFORMANCE_ONLY', '')) }
excepted, cases = cases.partition { |test| test.dig('except', 'ruby') }
excepted.each { |test| puts "excepted: #{test['name']}: #{test['except']['ruby']}" }
runs = cases.product(%i[fetch_v2 fetch_v2! fetch_async_v2])
failed = runs.count do |test, way|
  Run.new(mock, test, way).failures.each { |failure| puts "#{test['name']} (#{way}): #{failure}" }.any?
end
puts "conformance ruby: #{runs.size - failed} passed, #{failed} failed, #{excepted.size} excepted"
exit runs.size > failed && failed.zero?
