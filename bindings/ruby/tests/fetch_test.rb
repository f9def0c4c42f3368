# frozen_string_literal: true

require_relative 'helper'

# What goes in and comes out of a blocking fetch; the many cases are those of conformance.rb.
class FetchTest < ExperimentTest
  def test_variants_are_a_hash_that_tells_of_its_fetch
    variants = client(VARIANT).fetch_v2(User.new(user_id: 'u'))
    assert_equal({ 'flag' => Variant.new(key: 'on', value: 'on') }, variants)
    assert_equal 1, variants.attempts
    refute_predicate variants, :connection_reused?
    assert_operator variants.timings.fetch(:first_byte), :>, 0
    assert_nil variants.error
  end

  def test_variants_can_be_kept_in_a_cache
    variants = client({}).fetch_v2(User.new(user_id: 'u'))
    kept = Marshal.load(Marshal.dump(variants))
    assert_equal [variants, 1, variants.timings], [kept, kept.attempts, kept.timings]
  end

  def test_a_connection_is_used_again
    client = client(VARIANT)
    client.fetch_v2(nil)
    assert_predicate client.fetch_v2(nil), :connection_reused?
    assert_equal 1, seen['connections_accepted']
  end

  def test_what_may_pass_is_empty_variants_that_say_why_while_no_retries_are_configured
    variants = client({ answers: [{ status: 503 }] }).fetch_v2(nil)
    assert_empty variants
    assert_equal 503, variants.error.status_code
    assert_equal 1, variants.attempts
  end

  def test_what_may_pass_is_raised_after_retries
    client = client({ answers: [{ status: 503 }] }, fetch_retries: 1, fetch_retry_backoff_min_millis: 0)
    error = assert_raises(FetchError) { client.fetch_v2(nil) }
    assert_equal [503, 2, true, 'EXP_ERR_HTTP_STATUS'],
                 [error.status_code, error.attempts, error.retryable?, error.status]
  end

  def test_what_is_final_is_raised_at_once
    error = assert_raises(FetchError) { client({ answers: [{ status: 404 }] }).fetch_v2(nil) }
    assert_equal [404, false, 1], [error.status_code, error.retryable?, error.attempts]
  end

  def test_a_timeout_is_a_fetch_timeout_error_that_names_the_phase
    client = client(STALLED, fetch_timeout_millis: 100)
    error = assert_within(0.1) { assert_raises(FetchTimeoutError) { client.fetch_v2!(nil) } }
    assert_kind_of FetchError, error
    assert_equal %i[first_byte], error.timings.keys & [error.phase]
    assert_nil error.status_code
  end

  def test_a_service_that_asks_to_be_left_alone_says_for_how_many_seconds
    answer = { status: 429, headers: [%w[Retry-After 2]] }
    error = assert_raises(FetchError) { client({ answers: [answer] }).fetch_v2!(nil) }
    assert_in_delta 2.0, error.retry_after
  end

  def test_the_deprecated_fetch_leaves_out_default_variants
    answer = { json: { on: { key: 'on' }, off: { key: 'off', metadata: { default: true } } } }
    client = client({ answers: [answer] })
    assert_equal %w[on], client.fetch(nil).keys
    assert_equal %w[on], client.fetch_async(nil).value.keys
    assert_equal %w[on off], client.fetch_v2(nil).keys
  end

  def test_options_are_sent
    client(VARIANT).fetch_v2(nil, FetchOptions.new(tracks_assignment: false, tracks_exposure: true, flag_keys: ['a']))
    headers = seen['requests'].first['headers'].to_h.transform_keys(&:downcase)
    assert_equal %w[no-track track WyJhIl0],
                 headers.values_at('x-amp-exp-track', 'x-amp-exp-exposure-track', 'x-amp-exp-flag-keys')
  end

  def test_a_deadline_of_options_bounds_the_fetch
    assert_within(0.1) do
      assert_raises(FetchTimeoutError) { client(STALLED).fetch_v2!(nil, FetchOptions.new(deadline_millis: 100)) }
    end
  end

  def test_a_user_is_not_changed_and_may_be_a_hash
    user = User.new(user_id: 'u', groups: { 'org' => ['a'] })
    user.add_group_cohort_ids('org', 'a', ['c'])
    before = user.as_json
    client = client(VARIANT)
    client.fetch_v2(user)
    client.fetch_v2({ user_id: 'v', 'own' => 1 })
    assert_equal before, user.as_json
    library = { 'library' => "libexperiment-ruby/#{VERSION}" }
    assert_equal [{ 'user_id' => 'u', 'groups' => { 'org' => ['a'] },
                    'group_cohort_ids' => { 'org' => { 'a' => ['c'] } }, **library },
                  { 'user_id' => 'v', 'own' => 1, **library }],
                 (seen['requests'].map { |request| JSON.parse(request['body']) })
  end

  def test_every_field_of_a_user_is_written_by_its_name
    fields = User::FIELDS.to_h { |name| [name, "the #{name}"] }
    assert_equal fields, User.new(**fields).as_json
    assert_equal fields.transform_keys(&:to_s), JSON.parse(User.new(**fields).to_json)
  end

  def test_a_user_without_a_json_form_is_an_argument_error
    client = client(VARIANT)
    [Float::NAN, "\xff", "\xff".b].each do |value|
      error = assert_raises(InvalidArgumentError) { client.fetch_v2(User.new(user_properties: { a: value })) }
      assert_kind_of ArgumentError, error
      assert_equal ['EXP_ERR_INVALID_ARGUMENT', 0, false], [error.status, error.attempts, error.retryable?]
    end
    assert_equal 0, seen['requests_total']
  end

  def test_large_integers_survive_both_ways
    number = (2**200) + 1
    client = client({ answers: [{ body: %({"flag":{"payload":#{number},"value":#{number}}}) }] })
    variant = client.fetch_v2(User.new(user_properties: { number: }))['flag']
    assert_equal [number, number.to_s], [variant.payload, variant.value]
    assert_includes seen['requests'].first['body'], number.to_s
  end

  # As JSON has it, but Ruby's parser has not; whole pairs, and backslashes before a "u", stay what they are.
  def test_half_a_surrogate_pair_in_a_payload_fails_no_fetch
    body = '{"flag":{"payload":["\ud800","\uDE00 and more","\ud800\u0041 text","\uD83D\ude00","\\\\ud800"]}}'
    client = client({ answers: [{ body: }] })
    expected = ["\u{fffd}", "\u{fffd} and more", "\u{fffd}A text", "\u{1f600}", '\ud800']
    assert_equal expected, client.fetch_v2(nil)['flag'].payload
    assert_equal expected, Timeout.timeout(5) { client.fetch_async_v2(nil).value }['flag'].payload
  end

  def test_variants_are_equal_by_key_value_and_payload
    one = Variant.new(key: 'k', value: 'v', payload: 1, metadata: { 'a' => 1 })
    other = Variant.new(key: 'k', value: 'v', payload: 1)
    assert_equal one, other
    assert_equal 1, [one, other].uniq.size
    refute_equal one, Variant.new(key: 'k')
    refute_equal one, nil
  end

  def test_unknown_keywords_are_refused
    assert_raises(ArgumentError) { User.new(name: 'u') }
    assert_raises(ArgumentError) { RemoteEvaluationConfig.new(timeout: 1) }
    assert_raises(ArgumentError) { FetchOptions.new(track: true) }
  end

  def test_a_setting_that_is_not_what_it_must_be_is_named
    { fetch_timeout_millis: [-1, 0, 1.5, '500', 2**64], fetch_retries: [-1, 2**32, 101], server_zone: ['moon'],
      fetch_retry_backoff_scalar: ['x', 0.5], ca_file: ['/no/such/file'] }.each do |name, values|
      values.each do |value|
        settings = RemoteEvaluationConfig.new(name => value)
        error = assert_raises(InvalidArgumentError, "#{name}: #{value}") { RemoteEvaluationClient.new('key', settings) }
        assert_includes error.message, name.to_s
      end
    end
  end

  # Ruby's numbers are larger than the library's: none wraps around to "no limit".
  def test_a_time_that_cannot_be_is_refused_by_name
    client = client(VARIANT)
    [-1, 86_400_001, 2**64, 1.5, '500'].each do |millis|
      { deadline_millis: -> { client.fetch_v2(nil, FetchOptions.new(deadline_millis: millis)) },
        timeout_millis: -> { client.close(millis) } }.each do |name, call|
        assert_includes assert_raises(InvalidArgumentError, "#{name}: #{millis}", &call).message, name.to_s
      end
    end
    refute_predicate client, :closed?
    assert_equal %w[flag], client.fetch_v2(nil).keys
  end

  def test_a_text_that_is_not_in_its_encoding_is_refused_by_name_and_not_shown
    text = "secret \xff".dup.force_encoding(Encoding::US_ASCII)
    { api_key: -> { RemoteEvaluationClient.new(text) },
      proxy_url: -> { RemoteEvaluationClient.new('key', RemoteEvaluationConfig.new(proxy_url: text)) },
      flag_key: -> { client.fetch_v2(nil, FetchOptions.new(flag_keys: [text])) } }.each do |name, call|
      message = assert_raises(InvalidArgumentError, name.to_s, &call).message
      assert_equal [true, false], [message.include?(name.to_s), message.include?('secret')]
    end
  end

  def test_a_proxys_password_is_not_shown
    config = RemoteEvaluationConfig.new(proxy_url: 'http://user:secret@proxy')
    refute_includes config.inspect, 'secret'
    assert_includes config.inspect, 'fetch_retries'
  end

  def test_a_setting_that_is_nil_is_the_librarys_default
    settings = RemoteEvaluationConfig::DEFAULTS.keys.difference(%i[debug logger server_url]).to_h { |name| [name, nil] }
    assert_empty client({ answers: [{ status: 503 }] }, **settings).fetch_v2(nil)
    assert_equal 20_000, RemoteEvaluationConfig.new(**settings).worst_case_millis
  end

  def test_an_api_key_must_be_there
    [nil, '', "a\nb"].each { |key| assert_raises(ArgumentError) { RemoteEvaluationClient.new(key) } }
  end

  def test_the_worst_case_is_told
    assert_equal 20_000, RemoteEvaluationConfig.new.worst_case_millis
    assert_equal 700, RemoteEvaluationConfig.new(fetch_deadline_millis: 700).worst_case_millis
  end

  def test_one_client_for_each_key_until_it_is_closed
    config = RemoteEvaluationConfig.new(server_url: play(VARIANT), logger: quiet)
    key = SecureRandom.hex(8)
    first = AmplitudeExperiment.initialize_remote(key, config)
    assert_same first, AmplitudeExperiment.initialize_remote(key)
    first.close
    second = AmplitudeExperiment.initialize_remote(key, config)
    refute_same first, second
    assert_equal %w[flag], second.fetch_v2(nil).keys
  end

  def test_metrics_count_fetches
    client = client(VARIANT)
    client.fetch_v2(nil)
    assert_equal 1, client.metrics.fetch('fetches')
    assert client.openmetrics.end_with?("# EOF\n")
  end

  def test_a_closed_client_refuses_to_fetch
    client = client(VARIANT)
    assert client.close
    assert_predicate client, :closed?
    [-> { client.fetch_v2(nil) }, -> { client.fetch_async_v2(nil) }].each do |fetch|
      assert_equal 'EXP_ERR_CLOSED', assert_raises(FetchError, &fetch).status
    end
    assert client.close
    assert_equal 0, client.metrics.fetch('fetches')
  end

  def test_closing_ends_what_runs
    client = client(STALLED)
    fetch = Thread.new { assert_raises(FetchError) { client.fetch_v2(nil) } }
    eventually('a request') { seen['requests_total'] == 1 }
    refute assert_within(0.1) { client.close(100) }
    assert_equal 'EXP_ERR_CLOSED', fetch.value.status
  end
end
