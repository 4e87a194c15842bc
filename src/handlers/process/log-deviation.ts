import type { LogFields, Logger, LogLevel } from '../../base/log.ts'
import type { OnDeviation } from '../../oci/deviation.ts'

/**
 * Logs each deviation from a request in one line. `fields` say whose request it is. Additions of processes are logged at
 * `debug`, because a probe repeats the same one every few seconds, after the container's creation has told.
 */
export function logDeviation(log: Logger, level: LogLevel, fields: LogFields): OnDeviation {
  return (field, value, reason) =>
    log.log(level, 'specification not followed', { ...fields, field, value, reason })
}
