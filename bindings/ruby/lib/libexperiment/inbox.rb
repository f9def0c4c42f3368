# frozen_string_literal: true

require 'io/wait'

module AmplitudeExperiment
  # Where the library puts fetches that are over. Waiting for one is Ruby's own waiting for a descriptor:
  # other threads run meanwhile, Timeout, Thread#kill and Ctrl-C end it, and a Fiber scheduler takes it over.
  #
  # An inbox belongs to one fetch at a time. It is used again only after that fetch was taken out of it; one
  # whose fetch was left behind is thrown away, with whatever still arrives in it.
  # @api private
  class Inbox
    # @return [FFI::Pointer] the library's queue
    attr_reader :completions
    # @return [Outs]
    attr_reader :outs

    def initialize
      native = Native.exp_completions_new
      raise Errno::EMFILE, 'no descriptor is left to wait for a fetch with' if native.null?

      @completions = Native.owned(native)
      @outs = Outs.new
      # Not Ruby's to close.
      @readable = IO.for_fd(Native.exp_completions_fd(@completions), autoclose: false)
    end

    # Whether it is that of a process from which this one was forked, maybe unseen by Ruby. What it waits for never
    # arrives here, though its descriptor becomes readable.
    def inherited? = Native.exp_completions_fd(@completions).negative?

    # The fetch that arrived first, once there is one: an exp_pending that stays in the outs.
    def wait
      wait_readable while (@outs[:arrived] = Native.exp_completions_next(@completions)).null?
      @outs[:arrived]
    end

    # Throws it away: a fetch that was put into it ends, and nobody will ever see what it came to.
    def abandon
      Native.exp_pending_cancel(@outs[:pending])
      @outs.clear
      @completions.free
    end

    private

    # There is no limit to this wait, so only a scheduler comes back from it with nothing: async 1 makes that
    # of the end of its with_timeout.
    def wait_readable
      raise Failure.of(Native::CANCELED, 'the fetch is that of the process that forked') if inherited?

      @readable.wait_readable or raise Failure.of(Native::CANCELED, 'the Fiber scheduler ended the wait')
    end
  end
  private_constant :Inbox
end
