# frozen_string_literal: true

require 'json'

module AmplitudeExperiment
  # The variants of one fetch by flag key, in the service's order: a Hash, as the vendor's gem returns, that
  # also tells of its fetch.
  class Variants < Hash
    # @return [Integer] attempts that the fetch took, the first included
    attr_reader :attempts
    # @return [Hash{Symbol => Float}] seconds spent in each phase (:pool, :resolve, :connect, :tls, :send,
    #   :first_byte, :body, :backoff), all attempts together
    attr_reader :timings
    # @return [FetchError, nil] why fetch_v2 has no variants: README, "What comes back"
    attr_reader :error

    # @return [Boolean] whether the last attempt went over a connection that had served before
    def connection_reused? = @connection_reused

    # @param native [FFI::Pointer] an exp_variants, which stays its owner's
    # @api private
    def self.from(native)
      new.read(native)
    end

    # No variants, for want of better.
    # @param error [FetchError]
    # @api private
    def self.without(error)
      new.explain(error)
    end

    # @api private
    def read(native)
      @attempts = Native.exp_variants_attempts(native)
      @timings = Native.timings { |number| Native.exp_variants_phase_micros(native, number) }
      @connection_reused = Native.exp_variants_connection_reused(native) == 1
      json = Native.text(Native.exp_variants_json(native), Native.exp_variants_json_length(native))
      # The library has bounded the depth.
      JSON.parse(whole_characters(json), max_nesting: false).each do |flag_key, sent|
        self[flag_key] = variant(native, flag_key, sent)
      end
      self
    end

    # @api private
    def explain(error)
      @error = error
      @attempts = error.attempts
      @timings = error.timings
      @connection_reused = error.connection_reused?
      self
    end

    private

    # Half a surrogate pair, which payloads may have, is no character: by what follows it, Ruby's parser would
    # raise, or make of it what is no UTF-8.
    def whole_characters(json)
      return json unless json.match?(/\\ud[89a-f]/i)

      json.gsub(ESCAPE) { |escape| escape.match?(HALF) ? '\ufffd' : escape }
    end

    ESCAPE = /\\(?:ud[89ab]\h\h\\ud[c-f]\h\h|u\h{4}|.)/i
    HALF = /\A\\ud[89a-f]\h\h\z/i
    private_constant :ESCAPE, :HALF

    def variant(native, flag_key, sent)
      key, value, payload, metadata = sent.values_at('key', 'value', 'payload', 'metadata')
      key = text(native, flag_key, :key) unless key.is_a?(String)
      value = text(native, flag_key, :value) unless value.nil? || value.is_a?(String)
      Variant.new(key:, value:, payload:, metadata:)
    end

    # What is no string was parsed; the library has it as it was sent.
    def text(native, flag_key, field)
      variant = Native.exp_variants_get_n(native, flag_key, flag_key.bytesize)
      Native.text(Native.public_send(:"exp_variant_#{field}", variant),
                  Native.public_send(:"exp_variant_#{field}_length", variant))
    end
  end
end
