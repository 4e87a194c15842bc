/** Levels in the order of the behaviour spec, section A.11; the values are the names on the wire. */
export const LOG_LEVELS = {
  trace: 'TRCE',
  debug: 'DEBG',
  info: 'INFO',
  warn: 'WARN',
  error: 'ERRO',
  critical: 'CRIT',
} as const

export type LogLevel = keyof typeof LOG_LEVELS

/** Free key/values of a log line. Never environment, arguments or file contents. */
export type LogFields = Readonly<Record<string, string | number | bigint | boolean | undefined>>

/** Writes log lines: a constant message, data in fields. */
export interface Logger {
  log(level: LogLevel, message: string, fields?: LogFields): void
  trace(message: string, fields?: LogFields): void
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
  critical(message: string, fields?: LogFields): void
  /** A logger whose lines also carry these fields. */
  with(fields: LogFields): Logger
}

/** Where finished lines go (one line, newline included). */
export type LogSink = (line: string) => void

const ORDER = Object.keys(LOG_LEVELS) as readonly LogLevel[]

/**
 * A logger in the format of the behaviour spec, section A.11: one JSON object a line with `msg`, `level`,
 * `ts` (RFC 3339), `version`, `subsystem`, `pid`, `name`, `source`, and the fields as strings.
 */
export function jsonLogger(options: {
  readonly sink: LogSink
  /** The least level that is written, asked for each line. */
  readonly level: () => LogLevel
  readonly version: string
  readonly pid: number
  readonly now?: () => Date
}): Logger {
  const now = options.now ?? (() => new Date())
  const base = { version: options.version, pid: String(options.pid), name: 'kata-agent', source: 'agent' }
  return loggerOf((level, message, fields) => {
    if (ORDER.indexOf(level) < ORDER.indexOf(options.level())) return
    const line: Record<string, string> = {
      msg: message,
      level: LOG_LEVELS[level],
      ts: now().toISOString(),
      subsystem: 'root',
      ...base,
    }
    for (const [key, value] of Object.entries(fields)) if (value !== undefined) line[key] = String(value)
    options.sink(`${JSON.stringify(line)}\n`)
  }, {})
}

/** A logger that writes nothing, for tests. */
export function silentLogger(): Logger {
  return loggerOf(() => {}, {})
}

function loggerOf(
  write: (level: LogLevel, message: string, fields: LogFields) => void,
  bound: LogFields,
): Logger {
  const at = (level: LogLevel) => (message: string, fields?: LogFields) =>
    write(level, message, { ...bound, ...fields })
  return {
    log: (level, message, fields) => write(level, message, { ...bound, ...fields }),
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    critical: at('critical'),
    with: (fields) => loggerOf(write, { ...bound, ...fields }),
  }
}
