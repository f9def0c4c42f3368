# frozen_string_literal: true

module AmplitudeExperiment
  # Options of a fetch, used by any number of them.
  class FetchOptions
    # @return [Boolean, nil] whether the service records the assignment; nil: as it likes
    attr_accessor :tracks_assignment
    # @return [Boolean, nil] whether the service records an exposure; nil: as it likes
    attr_accessor :tracks_exposure
    # @return [Array<String>] the flags to evaluate; none: all
    attr_accessor :flag_keys
    # @return [Integer, nil] a bound on the whole fetch, beside the client's own
    attr_accessor :deadline_millis
    # @return [Cancel, nil] a switch that ends the fetch
    attr_accessor :cancel

    # The first two are the vendor's, the rest is ours.
    def initialize(tracks_assignment: nil, tracks_exposure: nil, flag_keys: [], deadline_millis: nil, cancel: nil)
      @tracks_assignment = tracks_assignment
      @tracks_exposure = tracks_exposure
      @flag_keys = flag_keys
      @deadline_millis = deadline_millis
      @cancel = cancel
    end

    # Writes these options into the library's own, which remember what they refuse: the fetch fails with it.
    # @api private
    def write_to(native)
      Native.exp_fetch_options_set_tracks_assignment(native, choice(tracks_assignment))
      Native.exp_fetch_options_set_tracks_exposure(native, choice(tracks_exposure))
      bound(native, deadline_millis) unless deadline_millis.nil?
      Native.exp_fetch_options_set_cancel(native, cancel.native) if cancel
      flag_keys&.each do |flag_key|
        key = Native.utf8(:flag_key, flag_key)
        Native.exp_fetch_options_add_flag_key_n(native, key, key.bytesize)
      end
    end

    private

    def bound(native, millis)
      Native.exp_fetch_options_set_deadline_millis(native, Native.number(:deadline_millis, :uint64, millis))
    end

    def choice(value)
      return Native::UNSET if value.nil?

      value ? 1 : 0
    end
  end

  # A switch that ends every fetch that carries it, now and from now on, with EXP_ERR_CANCELED.
  class Cancel
    # @api private
    attr_reader :native

    def initialize
      @native = Native.owned(Native.exp_cancel_new)
    end

    # Ends the fetches, and does not wait for that. Any thread, any number of times.
    def fire
      Native.exp_cancel_fire(@native)
      nil
    end
  end
end
