# frozen_string_literal: true

module AmplitudeExperiment
  # One asynchronous fetch. It answers to what one does with the Thread that the vendor's gem returns: join,
  # value, alive?. Any thread, any number of times.
  class Pending
    # @param deployed [Boolean] whether only deployed variants that are no default are wanted
    # @param settle [#call] makes of an outcome what `value` returns or raises
    # @param tell [#call] is given the outcome, once
    # @param own_thread [Boolean] whether that may take long
    # @api private
    def initialize(deployed:, settle:, tell:, own_thread:)
      @deployed = deployed
      @settle = settle
      @tell = tell
      @own_thread = own_thread
      @pid = Process.pid
      @lock = Mutex.new
      @over = ConditionVariable.new
    end

    # Ends the fetch with EXP_ERR_CANCELED, which is still told. Does nothing if it is over.
    def cancel
      Native.exp_pending_cancel(@native) if @native
      nil
    end

    # Waits until the fetch is over and its block has returned.
    #
    # @param limit [Numeric, nil] seconds; nil: as long as it takes
    # @return [Pending, nil] nil if the limit came first
    # @raise [ThreadError] it is its own block that waits
    def join(limit = nil)
      raise ThreadError, 'a block cannot wait for its own fetch' if @telling == Thread.current
      return self if forked?

      wait(limit)
      self if @done
    end

    # Waits for the fetch, and returns or raises what the call of the same name without `async` would.
    #
    # @return [Variants]
    # @raise [Failure]
    # @raise (see #join)
    def value
      join
      @settle.call(forked? ? Failure.of(Native::CANCELED, 'the fetch is that of the process that forked') : @outcome)
    end

    # @return [Boolean] whether it is not over
    def alive? = !(@done || forked?)

    # @param native [FFI::AutoPointer] to cancel with
    # @api private
    def started(native)
      @native = native
    end

    # The fetch has arrived; its block, if it has one, is still to run, on a thread of its own: it may take
    # its time, fetch, or wait for other fetches. So may the making of many objects.
    # @api private
    def ended(outs)
      NativeClient.receive(outs)
      if NativeClient.large?(outs)
        moved = outs.move
        return aside { end_with(moved) }
      end

      @outcome = outcome_in(outs)
      @own_thread ? aside { tell } : tell
    end

    private

    # On a thread of its own, unless the system has none left: better late for others than never for this one.
    def aside(&work)
      Thread.new(&work)
    rescue ThreadError
      work.call
    end

    def end_with(outs)
      @outcome = outcome_in(outs)
      outs.clear
      tell
    end

    # Whoever waits is told, even of a defect.
    def outcome_in(outs)
      NativeClient.outcome(outs, deployed: @deployed)
    rescue StandardError => e
      Failure.of(Native::INTERNAL, "what came of the fetch cannot be read: #{e.class}")
    end

    def wait(limit)
      ends = limit ? now + limit : Float::INFINITY
      @lock.synchronize { @over.wait(@lock, limit && [ends - now, 0].max) until @done || now >= ends }
    end

    def tell
      @telling = Thread.current
      @tell.call(@outcome)
    ensure
      @telling = nil
      done
    end

    def done
      @lock.synchronize do
        @done = true
        @over.broadcast
      end
    end

    def forked? = @pid != Process.pid

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # Waits for all asynchronous fetches of a process, on one thread, which runs while there are any.
  # @api private
  class Dispatcher
    def initialize
      @lock = Mutex.new
      @last_number = 0
    end

    # Starts a fetch: the block submits it, with the queue and the number by which it will be known, and
    # returns why it could not.
    # @return [Failure, nil]
    def start(pending)
      @lock.synchronize do
        begin_anew if @inbox.nil? || @inbox.inherited?
        @pendings[number = @last_number += 1] = pending
        failure = yield @inbox.completions, FFI::Pointer.new(number)
        watch unless failure || @thread&.alive?
        begun = !failure
        failure
      ensure
        @pendings.delete(number) unless begun
      end
    end

    private

    # What was pending in a process from which this one was forked is that one's, and so is the thread.
    def begin_anew
      @inbox = Inbox.new
      @pendings = {}
      @thread = nil
    end

    def watch
      @thread = Thread.new { deliver while more? }
      @thread.name = 'AmplitudeExperiment'
    end

    def deliver
      arrived = @inbox.wait
      pending = @lock.synchronize { @pendings.delete(Native.exp_pending_user_data(arrived).address) }
      pending&.ended(@inbox.outs) # Nobody knows one whose start was interrupted.
    ensure
      @inbox.outs.clear
    end

    # Ends the thread when nothing is left to wait for.
    def more?
      @lock.synchronize { @pendings.any? || (@thread = nil) }
    end
  end
  private_constant :Dispatcher
end
