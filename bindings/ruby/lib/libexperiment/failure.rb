# frozen_string_literal: true

module AmplitudeExperiment
  # What every error of this gem tells: `rescue AmplitudeExperiment::Failure` rescues them all.
  module Failure
    # @return [String] like "EXP_ERR_TIMEOUT": README, "What comes back"
    attr_reader :status
    # @return [Integer, nil] the HTTP status of the last answer; nil when there was none
    attr_reader :status_code
    # @return [Integer] attempts made, the first included; 0 when it failed before the first
    attr_reader :attempts
    # @return [Float, nil] seconds for which the service asked to be left alone
    attr_reader :retry_after
    # @return [Symbol, nil] what the fetch was doing when its time was over: :pool, :resolve, :connect,
    #   :tls, :send, :first_byte, :body or :backoff; nil if it failed otherwise
    attr_reader :phase
    # @return [Hash{Symbol => Float}] seconds spent in each phase, all attempts together
    attr_reader :timings

    # @return [Boolean] whether the same call may succeed when made again
    def retryable? = @retryable

    # @return [Boolean] whether the last attempt went over a connection that had served before
    def connection_reused? = @connection_reused

    # The error for a native one, which stays its owner's.
    # @api private
    def self.from(error)
      message = Native.text(Native.exp_error_message(error), Native.exp_error_message_length(error))
      CLASSES.fetch(Native.exp_error_status(error), FetchError).new(message).told_by(error)
    end

    # One that the library was not asked about.
    # @api private
    def self.of(status, message)
      CLASSES.fetch(status, FetchError).new(message).without_attempt(status)
    end

    # An answer that came, of which there was no time to make objects.
    # @param variants [Variants] those that were made
    # @api private
    def self.unmade(variants)
      FetchTimeoutError.new('the answer came, but making its objects took longer than the timeout allows')
                       .told_of(variants)
    end

    # @api private
    def told_of(variants)
      @status = Native.exp_status_name(Native::TIMEOUT)
      @phase = :body
      @retryable = true
      @attempts = variants.attempts
      @timings = variants.timings
      @connection_reused = variants.connection_reused?
      self
    end

    # @api private
    def told_by(error)
      @status = Native.exp_status_name(Native.exp_error_status(error))
      @status_code = Native.exp_error_http_status(error).nonzero?
      @attempts = Native.exp_error_attempts(error)
      @retry_after = Native.exp_error_retry_after_millis(error).nonzero?&.fdiv(1000)
      phase = Native.exp_error_phase(error)
      @phase = Native::PHASES[phase] unless phase.negative?
      @timings = Native.timings { |number| Native.exp_error_phase_micros(error, number) }
      @retryable = Native.exp_error_is_retryable(error) == 1
      @connection_reused = Native.exp_error_connection_reused(error) == 1
      self
    end

    # @api private
    def without_attempt(status)
      @status = Native.exp_status_name(status)
      @attempts = 0
      @timings = {}.freeze
      @retryable = @connection_reused = false
      self
    end
  end

  # A fetch that brought no variants. (Its superclass is not StandardError, as the vendor's is, so that
  # their gem cannot be loaded over this one unnoticed.)
  class FetchError < RuntimeError
    include Failure
  end

  # Time was over: waiting for a connection or for the answer. The message tells which.
  class FetchTimeoutError < FetchError; end

  # A key, a setting, a user or an option is not what it must be; the message names it.
  class InvalidArgumentError < ArgumentError
    include Failure
  end

  module Failure
    CLASSES = { Native::INVALID_ARGUMENT => InvalidArgumentError, Native::TIMEOUT => FetchTimeoutError }.freeze
    private_constant :CLASSES
  end
end
