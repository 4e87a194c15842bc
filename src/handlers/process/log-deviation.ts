import type { LogFields, Logger, LogLevel } from '../../base/log.ts'
import type { OnDeviation } from '../../oci/deviation.ts'

/** ExecProcess logs at `debug`, because a probe repeats the deviations of the container's creation every few seconds. */
export function logDeviation(log: Logger, level: LogLevel, fields: LogFields): OnDeviation {
  return (field, value, reason) =>
    log.log(level, 'specification not followed', { ...fields, field, value, reason })
}
