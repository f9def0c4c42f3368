# frozen_string_literal: true

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
    # @return [Variants, Failure] the latter if the fetch's time was over before all objects were made
    # @api private
    def self.from(native)
      variants = new.tell_of(native)
      variants.read(native) ? variants : Failure.unmade(variants)
    end

    # No variants, for want of better.
    # @param error [FetchError]
    # @api private
    def self.without(error)
      new.explain(error)
    end

    # @api private
    def tell_of(native)
      @attempts = Native.exp_variants_attempts(native)
      @timings = Native.timings { |number| Native.exp_variants_phase_micros(native, number) }
      @connection_reused = Native.exp_variants_connection_reused(native) == 1
      self
    end

    # Makes the variants, as long as the fetch's time lasts: false if that is over before.
    # @api private
    def read(native)
      count = Native.exp_variants_count(native)
      turn = Native.exp_variants_micros_left(native)
      (0...count).step(PIECE) do |first|
        left = Native.exp_variants_micros_left(native)
        return false if left.zero?

        turn = left_after_others(native) if turn - left > TURN_MICROS
        first.upto([first + PIECE, count].min - 1) { |index| add(Native.exp_variants_at(native, index)) }
      end
      true
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

    # Variants between two looks at the clock; they take a quarter of a millisecond.
    PIECE = 64
    # How long this thread works before it lets others run.
    TURN_MICROS = 3_000
    private_constant :PIECE, :TURN_MICROS

    # Lets other threads run, or the other fibers of a scheduler, and whoever wants to interrupt this one.
    # @return [Integer] microseconds left of the fetch's time afterwards
    def left_after_others(native)
      Fiber.current_scheduler ? sleep(0) : Thread.pass
      Native.exp_variants_micros_left(native)
    end

    def add(variant)
      flag_key = Native.text(Native.exp_variant_flag_key(variant), Native.exp_variant_flag_key_length(variant))
      self[flag_key] = Variant.from(variant)
    end
  end
end
