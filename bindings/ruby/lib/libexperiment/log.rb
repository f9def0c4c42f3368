# frozen_string_literal: true

module AmplitudeExperiment
  # Brings the library's log lines to Ruby loggers.
  #
  # They come from threads that are not Ruby's, so ffi runs them on a thread of its own, and the library's
  # waits for that. No Ruby thread waits for the library with the GVL in its hands, so this cannot lock up.
  # Still, loggers that want errors only are not connected: those come as exceptions anyway.
  # @api private
  module Log
    @loggers = {}
    @lock = Mutex.new

    SEVERITIES = { Native::LOG_ERROR => ::Logger::ERROR, Native::LOG_WARN => ::Logger::WARN,
                   Native::LOG_INFO => ::Logger::INFO, Native::LOG_DEBUG => ::Logger::DEBUG }.freeze

    class << self
      # Connects settings with a logger.
      # @return [Integer, nil] the connection's number, to end it with
      def connect(native_config, logger)
        level = level_of(logger)
        return if level == Native::LOG_ERROR

        number = Object.new.object_id
        @loggers[number] = logger
        Native.exp_config_set_log_callback(native_config, callback, FFI::Pointer.new(number), nil, level)
        number
      end

      # Lines that are still on their way are dropped.
      def disconnect(number)
        @loggers.delete(number)
      end

      # The thread on which ffi runs callbacks is lost in a fork. Making a callback, any, starts it anew.
      def revive
        FFI::Function.new(:void, []) { nil } if @callback
      end

      def write(number, level, message)
        @loggers[number]&.add(SEVERITIES.fetch(level), "[Experiment] #{message}")
      rescue StandardError => e
        warn "AmplitudeExperiment: the logger failed: #{e.message} (#{e.class})"
      end

      private

      # One for all, never collected. What it is called with tells whose line it is.
      def callback
        @lock.synchronize do
          @callback ||= FFI::Function.new(:void, %i[pointer int pointer size_t]) do |number, level, message, length|
            write(number.address, level, Native.text(message, length))
          end
        end
      end

      def level_of(logger)
        return Native::LOG_DEBUG if logger.debug?
        return Native::LOG_INFO if logger.info?

        logger.warn? ? Native::LOG_WARN : Native::LOG_ERROR
      end
    end
  end
  private_constant :Log
end
