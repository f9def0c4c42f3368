# frozen_string_literal: true

require 'ffi'

module AmplitudeExperiment
  # The functions of include/experiment.h that are used here, by their names there.
  # @api private
  module Native
    extend FFI::Library

    OK = 0
    INVALID_ARGUMENT = 1
    TIMEOUT = 2
    CANCELED = 7
    INTERNAL = 10

    UNSET = -1
    METRICS_JSON = 0
    METRICS_OPENMETRICS = 1
    ZONES = { 'US' => 0, 'EU' => 1 }.freeze
    NO_LIMIT = (2**64) - 1
    # The longest time in milliseconds that is one.
    LONGEST_MILLIS = 86_400_000

    # By the numbers of exp_phase.
    PHASES = %i[pool resolve connect tls send first_byte body backoff].freeze

    # EXPERIMENT_LIBRARY and then nothing else; the copy in the gem; the system's.
    def self.library_path
      named = ENV.fetch('EXPERIMENT_LIBRARY', '')
      return existing(named) unless named.empty?

      bundled = File.join(__dir__, 'libexperiment.so')
      File.file?(bundled) ? bundled : "libexperiment.so.#{VERSION[/\d+/]}"
    end

    def self.existing(path)
      return File.expand_path(path) if File.file?(path)

      raise LoadError, "EXPERIMENT_LIBRARY names no file: #{path}"
    end

    # What musl's loader says of a library for glibc is a list of symbols.
    def self.check_libc(path)
      return unless RbConfig::CONFIG['host_os'].include?('musl')
      return unless File.file?(path) && File.binread(path).include?('GLIBC_2.')

      raise LoadError, "#{path} is a library for glibc, and this Ruby runs on musl: install the gem for " \
                       "#{RbConfig::CONFIG['host_cpu']}-linux-musl, or name a library for musl by EXPERIMENT_LIBRARY"
    end

    # While the major version is 0, a minor one may change everything.
    def self.check_version(library_version)
      return if library_version.split('.').first(2) == VERSION.split('.').first(2)

      raise LoadError, "libexperiment #{VERSION} (the gem) cannot use libexperiment #{library_version} " \
                       "(the library, #{library_path})"
    end

    check_libc(library_path)
    ffi_lib library_path
    attach_function :exp_version, [], :string
    check_version(exp_version)

    # Text is passed as :pointer with its length: it may hold NULs, and is not copied.
    attach_function :exp_status_name, [:int32], :string
    attach_function :exp_free, [:pointer], :void
    # The same without an object for each pointer. On Linux a long is as wide as a pointer.
    attach_function :free_at, :exp_free, [:ulong], :void

    attach_function :exp_config_new, [], :pointer
    attach_function :exp_config_worst_case_millis, [:pointer], :uint64

    # The settings that are one value each, and in which type the library takes them.
    SETTINGS = {
      server_url: :text, ca_file: :text, proxy_url: :text, library: :text, server_zone: :zone,
      fetch_timeout_millis: :uint64, fetch_pool_acquire_timeout_millis: :uint64,
      fetch_retry_timeout_millis: :uint64, fetch_retry_backoff_min_millis: :uint64,
      fetch_retry_backoff_max_millis: :uint64, fetch_deadline_millis: :uint64,
      connection_idle_timeout_millis: :uint64, connection_max_lifetime_millis: :uint64,
      max_response_bytes: :uint64, fetch_retries: :uint32, fetch_retry_budget_percent: :uint32,
      connection_pool_max_size: :uint32, max_pending_fetches: :uint32,
      fetch_retry_backoff_scalar: :double, fetch_retry_jitter: :switch, use_environment_proxy: :switch
    }.freeze
    SETTINGS.each do |name, type|
      case type
      when :text then attach_function :"exp_config_set_#{name}_n", %i[pointer pointer size_t], :int
      when :zone, :switch then attach_function :"exp_config_set_#{name}", %i[pointer int32], :int
      else attach_function :"exp_config_set_#{name}", [:pointer, type], :int
      end
    end

    attach_function :exp_user_from_json_n, %i[pointer size_t pointer pointer], :int

    attach_function :exp_fetch_options_new, [], :pointer
    attach_function :exp_fetch_options_set_tracks_assignment, %i[pointer int32], :int
    attach_function :exp_fetch_options_set_tracks_exposure, %i[pointer int32], :int
    attach_function :exp_fetch_options_add_flag_key_n, %i[pointer pointer size_t], :int
    attach_function :exp_fetch_options_set_deadline_millis, %i[pointer uint64], :int
    attach_function :exp_fetch_options_set_cancel, %i[pointer pointer], :int
    attach_function :exp_cancel_new, [], :pointer
    attach_function :exp_cancel_fire, [:pointer], :void

    attach_function :exp_client_new_n, %i[pointer size_t pointer pointer pointer], :int
    attach_function :exp_client_metrics, %i[pointer int32 pointer pointer], :int
    # Waits, and lets other threads run meanwhile.
    attach_function :exp_client_close, %i[pointer uint64], :int, blocking: true

    attach_function :exp_fetch_v2_submit, %i[pointer pointer pointer pointer pointer pointer pointer], :int
    attach_function :exp_pending_cancel, [:pointer], :int
    attach_function :exp_pending_take, %i[pointer pointer pointer], :int
    attach_function :exp_pending_user_data, [:pointer], :pointer
    attach_function :exp_completions_new, [], :pointer
    attach_function :exp_completions_fd, [:pointer], :int
    attach_function :exp_completions_next, [:pointer], :pointer

    attach_function :exp_variants_count, [:pointer], :size_t
    attach_function :exp_variants_at, %i[pointer size_t], :pointer
    attach_function :exp_variants_micros_left, [:pointer], :uint64
    # Takes 10 ms for a hundred thousand.
    attach_function :exp_variants_filter_deployed, %i[pointer pointer pointer], :int, blocking: true
    attach_function :exp_variants_attempts, [:pointer], :uint32
    attach_function :exp_variants_connection_reused, [:pointer], :int32
    attach_function :exp_variants_phase_micros, %i[pointer int32], :uint64
    %i[flag_key key value].each do |name|
      attach_function :"exp_variant_#{name}", [:pointer], :pointer
      attach_function :"exp_variant_#{name}_length", [:pointer], :size_t
    end
    # JSON holds no NUL, so these are copied in one call.
    attach_function :exp_variant_payload_json, [:pointer], :string
    attach_function :exp_variant_metadata_json, [:pointer], :string

    attach_function :exp_error_status, [:pointer], :int
    attach_function :exp_error_message, [:pointer], :pointer
    attach_function :exp_error_message_length, [:pointer], :size_t
    attach_function :exp_error_http_status, [:pointer], :int32
    attach_function :exp_error_attempts, [:pointer], :uint32
    attach_function :exp_error_is_retryable, [:pointer], :int32
    attach_function :exp_error_retry_after_millis, [:pointer], :uint64
    attach_function :exp_error_phase, [:pointer], :int
    attach_function :exp_error_phase_micros, %i[pointer int32], :uint64
    attach_function :exp_error_connection_reused, [:pointer], :int32
    attach_function :exp_text_value, [:pointer], :pointer
    attach_function :exp_text_length, [:pointer], :size_t

    # A copy of a text that the library lends; nil for NULL.
    def self.text(pointer, length)
      pointer.read_string(length).force_encoding(Encoding::UTF_8) unless pointer.null?
    end

    # A text as the library reads it. Bytes without an encoding are taken for what it wants. The error does not
    # show it: it may be a secret.
    def self.utf8(name, value)
      text = value.to_s
      text.encoding == Encoding::BINARY ? text : text.encode(Encoding::UTF_8)
    rescue EncodingError
      raise Failure.of(INVALID_ARGUMENT, "#{name} cannot be written as UTF-8")
    end

    # A number that the library can be given. Ruby's have no bounds: one beyond the library's type would wrap
    # around to a valid one.
    def self.number(name, type, value)
      fits = type == :double ? value.is_a?(Numeric) : value.is_a?(Integer) && (0...LIMITS[type]).cover?(value)
      return value if fits

      raise Failure.of(INVALID_ARGUMENT, "#{name} must be a number from 0, not #{value.inspect}")
    end

    LIMITS = { uint32: 2**32, uint64: 2**64 }.freeze
    private_constant :LIMITS

    # Seconds by phase, of those in which time was spent. The block tells a phase's microseconds.
    def self.timings
      seconds = {}
      PHASES.each_with_index do |phase, number|
        micros = yield number
        seconds[phase] = micros / 1e6 unless micros.zero?
      end
      seconds.freeze
    end

    # An object that is freed when nobody refers to it any more. Freeing never blocks, so the garbage
    # collector may do it.
    def self.owned(pointer)
      FFI::AutoPointer.new(pointer, method(:exp_free))
    end

    private_class_method :existing, :check_libc, :check_version
  end
  private_constant :Native
end
