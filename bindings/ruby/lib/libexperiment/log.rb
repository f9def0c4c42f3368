# frozen_string_literal: true

require 'logger'

module AmplitudeExperiment
  # What a client writes into its logger, on the thread whose fetch it is: tags of a request are on its lines.
  #
  # The library has a log callback, too. It is not used: it comes from threads that are not Ruby's, which ffi
  # hands over to one of its own. A fetch would wait for that, and with ffi before 1.17.1 a fork at that moment
  # crashes the child.
  # @api private
  class Log
    # What the service's cache takes.
    CACHEABLE_USER_BYTES = 8_000

    # Seconds between two looks for entries that were left out.
    LOOK_EVERY = 1

    # @param config [RemoteEvaluationConfig]
    def initialize(config)
      @logger = config.logger || Logger.new($stdout, level: Logger::ERROR)
      @logger.level = Logger::DEBUG if config.debug
      @skipped = 0
      @next_look = 0
    end

    def settings(config)
      connect = config.connect_timeout_millis
      fetch = config.fetch_timeout_millis
      return unless connect.is_a?(Numeric) && fetch && connect < fetch

      write(Logger::WARN) { 'connect_timeout_millis has no effect: fetch_timeout_millis bounds connecting as well' }
    end

    # Warns once of a user that is too large.
    def user(json)
      return if @warned_of_size || json.bytesize <= CACHEABLE_USER_BYTES

      @warned_of_size = true
      write(Logger::WARN) do
        "a user of #{json.bytesize} bytes cannot be cached by the service, whose limit is #{CACHEABLE_USER_BYTES}; " \
          'further ones are not reported'
      end
    end

    # @param outcome [Variants, Failure]
    # @param native [NativeClient] which counts what it left out
    def fetch(outcome, native)
      failed = outcome.is_a?(Failure)
      write(failed ? Logger::WARN : Logger::DEBUG) do
        "fetch: #{failed ? outcome.message : "#{outcome.size} variants"} (#{outcome.attempts} attempts, " \
          "#{(outcome.timings.values.sum * 1_000).round} ms)"
      end
      look_for_skipped(native) unless failed
    end

    # An error of which empty variants were made.
    def no_variants(failure)
      write(Logger::ERROR) { "no variants: #{failure.message}" }
    end

    # What the block of an asynchronous fetch raised.
    def raised(error)
      write(Logger::ERROR) { "the block of an asynchronous fetch failed: #{error.full_message(highlight: false)}" }
    end

    private

    # Entries of answers are counted by the library, but not by answer. Reading its counters takes as long as
    # a tenth of a fetch.
    def look_for_skipped(native)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if now < @next_look || !@logger.warn?

      @next_look = now + LOOK_EVERY
      known = @skipped
      @skipped = native.entries_skipped
      return unless @skipped > known

      write(Logger::WARN) { "skipped #{@skipped - known} entries of responses that are not variants" }
    end

    # A logger that fails must not change what a fetch came to.
    def write(severity)
      @logger.add(severity) { "[Experiment] #{yield}" }
    rescue StandardError => e
      warn "AmplitudeExperiment: the logger failed: #{e.message} (#{e.class})"
    end
  end
  private_constant :Log
end
