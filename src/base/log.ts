/** Levels in increasing order; the values are their names in a log line. */
export const LOG_LEVELS = {
  trace: 'TRCE',
  debug: 'DEBG',
  info: 'INFO',
  warn: 'WARN',
  error: 'ERRO',
  critical: 'CRIT',
} as const

export type LogLevel = keyof typeof LOG_LEVELS

/** Fields never hold environments, arguments or file contents. */
export type LogFields = Readonly<Record<string, string | number | bigint | boolean | undefined>>

export interface Logger {
  /** Lets callers skip building costly fields. */
  isLogged(level: LogLevel): boolean
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

/** Writes one line, which ends with its newline. */
export type LogSink = (line: string, level: LogLevel) => void

const ORDER = Object.keys(LOG_LEVELS) as readonly LogLevel[]

/** Logs in the format of Kata's agent: one JSON object per line, whose fields are strings; `ts` is RFC 3339. */
export function jsonLogger(options: {
  readonly sink: LogSink
  /** Returns the lowest level that is written; called for each line. */
  readonly level: () => LogLevel
  readonly version: string
  readonly pid: number
  readonly now?: () => Date
  /** Who logs; by default the agent, under the names that shims know. */
  readonly program?: { readonly name: string; readonly source: string }
}): Logger {
  const now = options.now ?? (() => new Date())
  const { program = { name: 'kata-agent', source: 'agent' } } = options
  const base = { version: options.version, pid: String(options.pid), ...program }
  const isLogged = (level: LogLevel) => ORDER.indexOf(level) >= ORDER.indexOf(options.level())
  const write: Write = (level, message, fields) => {
    if (!isLogged(level)) return
    const line: Record<string, string> = {
      msg: message,
      level: LOG_LEVELS[level],
      ts: now().toISOString(),
      subsystem: 'root',
      ...base,
    }
    for (const [key, value] of Object.entries(fields)) if (value !== undefined) line[key] = String(value)
    options.sink(`${JSON.stringify(line)}\n`, level)
  }
  return loggerOf(write, isLogged, {})
}

export function silentLogger(): Logger {
  return loggerOf(
    () => {},
    () => false,
    {},
  )
}

type Write = (level: LogLevel, message: string, fields: LogFields) => void

function loggerOf(write: Write, isLogged: Logger['isLogged'], bound: LogFields): Logger {
  const at = (level: LogLevel) => (message: string, fields?: LogFields) =>
    write(level, message, { ...bound, ...fields })
  return {
    isLogged,
    log: (level, message, fields) => write(level, message, { ...bound, ...fields }),
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    critical: at('critical'),
    with: (fields) => loggerOf(write, isLogged, { ...bound, ...fields }),
  }
}
