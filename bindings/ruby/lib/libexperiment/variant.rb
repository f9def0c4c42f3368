# frozen_string_literal: true

require 'json'

module AmplitudeExperiment
  # The variant that a user got of one flag.
  #
  # Payload and metadata are parsed when they are first asked for: few callers do, and a fetch does not wait for it.
  class Variant
    # @return [String, nil] its key in the flag's configuration
    attr_accessor :key
    # @return [String, nil] its value; JSON if the service sent no string
    attr_accessor :value

    def initialize(key: nil, value: nil, payload: nil, metadata: nil)
      @key = key
      @value = value
      @payload = payload
      @metadata = metadata
    end

    # The variant as the library lends it.
    # @api private
    def self.from(native)
      allocate.read(native)
    end

    # @return [Object, nil] what is attached to it
    def payload
      json = @payload_json # read once: another thread may be done with it meanwhile
      return @payload unless json
      return parse(json) if frozen?

      @payload = parse(json)
      @payload_json = nil # last: another thread parses it once more, or finds it done
      @payload
    end

    # What it shall be from now on.
    #
    # @param value [Object, nil]
    def payload=(value)
      @payload_json = nil
      @payload = value
    end

    # @return [Hash, nil] what the service tells of the evaluation
    def metadata
      json = @metadata_json
      return @metadata unless json
      return parse(json) if frozen?

      @metadata = parse(json)
      @metadata_json = nil
      @metadata
    end

    # What it shall be from now on.
    #
    # @param value [Hash, nil]
    def metadata=(value)
      @metadata_json = nil
      @metadata = value
    end

    # As in the vendor's gem: metadata is not compared.
    def ==(other)
      other.is_a?(Variant) && identity == other.identity
    end
    alias eql? ==

    # Equal variants have equal ones.
    def hash = identity.hash

    # @return [Hash{String => Object}] what ActiveSupport writes as JSON
    def as_json(_options = nil)
      { 'key' => key, 'value' => value, 'payload' => payload, 'metadata' => metadata }
    end

    # @return [String] the same as JSON
    def to_json(*options)
      as_json.to_json(*options)
    end

    # @return [String] all of it
    def inspect
      "#<#{self.class} key=#{key.inspect}, value=#{value.inspect}, payload=#{payload.inspect}, " \
        "metadata=#{metadata.inspect}>"
    end

    # @api private
    def read(native)
      @key = Native.text(Native.exp_variant_key(native), Native.exp_variant_key_length(native))
      @value = Native.text(Native.exp_variant_value(native), Native.exp_variant_value_length(native))
      @payload_json = Native.exp_variant_payload_json(native)
      @metadata_json = Native.exp_variant_metadata_json(native)
      self
    end

    protected

    def identity = [key, value, payload]

    private

    # The library has bounded the depth.
    def parse(json)
      JSON.parse(whole_characters(json.dup.force_encoding(Encoding::UTF_8)), max_nesting: false)
    end

    # Half a surrogate pair, which payloads may have, is no character: by what follows it, Ruby's parser would
    # raise, or make of it what is no UTF-8.
    def whole_characters(json)
      return json unless json.match?(/\\ud[89a-f]/i)

      json.gsub(ESCAPE) { |escape| escape.match?(HALF) ? '\ufffd' : escape }
    end

    ESCAPE = /\\(?:ud[89ab]\h\h\\ud[c-f]\h\h|u\h{4}|.)/i
    HALF = /\A\\ud[89a-f]\h\h\z/i
    private_constant :ESCAPE, :HALF
  end
end
