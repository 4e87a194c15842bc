/** A mistake in the command line. The message is one sentence that says what to do; the exit status is 2. */
export class UsageError extends Error {
  /**
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(message, options) {
    super(message, options)
    this.name = 'UsageError'
  }
}
