import { type LogFields, type Logger, type LogLevel, silentLogger } from '../../../src/base/log.ts'

export interface LoggedLine {
  readonly level: LogLevel
  readonly message: string
  readonly fields: LogFields
}

export function recordingLog() {
  const lines: LoggedLine[] = []
  const log: Logger['log'] = (level, message, fields = {}) => void lines.push({ level, message, fields })
  const at = (level: LogLevel) => (message: string, fields?: LogFields) => log(level, message, fields)
  const levels = { info: at('info'), warn: at('warn'), error: at('error'), critical: at('critical') }
  return { lines, log: { ...silentLogger(), log, ...levels } }
}
