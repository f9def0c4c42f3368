# frozen_string_literal: true

require_relative 'helper'
require 'async'

# The objects of an answer are made within the bound of its fetch, and nobody has to stand still for it.
class BoundTest < ExperimentTest
  BOUND = 0.5
  LARGEST = 8 << 20

  def self.many_variants(count)
    "{#{Array.new(count) { |i| format('"f%06d":{"key":"on","value":"on","payload":{"n":1}}', i) }.join(',')}}"
  end

  def self.large(field)
    %({"f":{"key":"on","#{field}":{"list":[#{(['[]'] * ((LARGEST - 64) / 3)).join(',')}]}}})
  end

  # Those that take the longest to make objects of.
  LARGE = { '138 000 variants': many_variants(138_000), 'a payload of lists': large('payload'),
            'metadata of lists': large('metadata') }.freeze

  def client_of(body, **settings)
    client({ keep: 'nothing', answers: [{ body: }] }, **settings)
  end

  def assert_variants_or_timeout(outcome)
    return refute_empty outcome unless outcome.is_a?(FetchTimeoutError)

    assert_equal ['EXP_ERR_TIMEOUT', :body, true, 1],
                 [outcome.status, outcome.phase, outcome.retryable?, outcome.attempts]
    assert_includes outcome.message, 'making its objects took longer than the timeout allows'
  end

  def outcome
    yield
  rescue FetchError => e
    e
  end

  LARGE.each do |name, body|
    define_method(:"test_a_fetch_is_over_within_its_bound_with_#{name}") do
      client = client_of(body, fetch_timeout_millis: (BOUND * 1000).to_i)
      [-> { client.fetch_v2!(nil) }, -> { client.fetch_async_v2(nil).value }, -> { client.fetch(nil) }].each do |fetch|
        outcome = assert_within(BOUND) { outcome(&fetch) }
        outcome = outcome.error || outcome if outcome.is_a?(Variants)
        assert_variants_or_timeout(outcome)
      end
    end
  end

  def test_what_there_is_no_time_to_make_objects_of_is_a_timeout_of_the_body
    Native.stub(:exp_variants_micros_left, 0) do
      client = client_of('{"f":{}}', fetch_retries: 1)
      [-> { client.fetch_v2!(nil) }, -> { client.fetch_async_v2(nil).value }].each do |fetch|
        assert_variants_or_timeout(assert_raises(FetchTimeoutError, &fetch))
      end
      assert_variants_or_timeout(client_of('{"f":{}}').fetch_v2(nil).error)
    end
  end

  def test_other_threads_get_their_turn_while_objects_are_made
    client = client_of(LARGE.values.first, fetch_timeout_millis: 20_000)
    making = Thread.new { client.fetch_v2!(nil) }
    turns = 0
    (turns += 1) && sleep(0.001) while making.alive?
    assert_equal 138_000, making.value.size
    # By Ruby's own clock a thread that works is relieved every 100 ms: some 30 turns here.
    assert_operator turns, :>, 80
  end

  def test_other_fibers_get_their_turn_while_objects_are_made
    client = client_of(LARGE.values.first, fetch_timeout_millis: 20_000)
    longest = 0
    Async do |task|
      making = task.async { client.fetch_v2!(nil).size }
      while making.running?
        last = now
        task.sleep 0.001
        longest = [longest, now - last].max
      end
      assert_equal 138_000, making.wait
    end
    assert_operator longest, :<, 0.1 + GRACE
  end

  def test_the_making_of_objects_can_be_interrupted
    client = client_of(LARGE.values.first, fetch_timeout_millis: 20_000)
    made = 0
    interrupted = Class.new(StandardError)
    count = lambda do |variant|
      raise interrupted if (made += 1) == 1_000

      Variant.allocate.read(variant)
    end
    Variant.stub(:from, count) { assert_raises(interrupted) { client.fetch_v2!(nil) } }
    assert_equal 1_000, made
    assert_equal 138_000, client.fetch_v2!(nil).size
    assert_raises(Timeout::Error) { Timeout.timeout(0.15) { loop { client.fetch_v2!(nil) } } }
  end

  # One thread takes what has arrived for all of them.
  def test_a_large_answer_holds_up_no_other_asynchronous_fetch
    client = client_of(LARGE.values.first, fetch_timeout_millis: 20_000)
    other = client({ keep: 'nothing', answers: [{ delay_millis: 20, json: { flag: {} } }] })
    large = Array.new(2) { client.fetch_async_v2(nil) }
    200.times { break unless large.any?(&:alive?) && assert_within(0.2) { other.fetch_async_v2(nil).value } }
    large.each { |pending| assert_equal 138_000, pending.value.size }
  end

  def test_variants_come_whole_in_whatever_pieces
    [0, 1, 63, 64, 65, 129].each do |count|
      variants = client_of(self.class.many_variants(count)).fetch_v2!(nil)
      assert_equal(Array.new(count) { |i| format('f%06d', i) }, variants.keys)
      assert(variants.values.all? { |variant| variant == Variant.new(key: 'on', value: 'on', payload: { 'n' => 1 }) })
    end
  end

  def test_payload_and_metadata_are_as_before_whenever_they_are_asked_for
    variant = client_of('{"f":{"key":"k","payload":{"ä":[1]},"metadata":{"default":true}}}').fetch_v2!(nil)['f'].freeze
    assert_equal [{ 'ä' => [1] }, { 'default' => true }], [variant.payload, variant.metadata]
    copy = Marshal.load(Marshal.dump(variant))
    assert_includes copy.inspect, 'payload={"ä"=>[1]}, metadata={"default"=>true}'
    assert_equal variant.as_json, JSON.parse(JSON.generate(copy))
    assert_same copy.payload, copy.payload
    copy.payload = copy.metadata = nil
    assert_equal [nil, nil], [copy.payload, copy.metadata]
  end
end
