# frozen_string_literal: true

module AmplitudeExperiment
  # The variant that a user got of one flag.
  class Variant
    # @return [String, nil] its key in the flag's configuration
    attr_accessor :key
    # @return [String, nil] its value; JSON if the service sent no string
    attr_accessor :value
    # @return [Object, nil] what is attached to it
    attr_accessor :payload
    # @return [Hash, nil] what the service tells of the evaluation
    attr_accessor :metadata

    def initialize(key: nil, value: nil, payload: nil, metadata: nil)
      @key = key
      @value = value
      @payload = payload
      @metadata = metadata
    end

    # As in the vendor's gem: metadata is not compared.
    def ==(other)
      other.is_a?(Variant) && identity == other.identity
    end
    alias eql? ==

    # Equal variants have equal ones.
    def hash = identity.hash

    protected

    def identity = [key, value, payload]
  end
end
