import { AgentError, StatusCode } from '../../base/errors.ts'
import type { Session } from '../../client/open-session.ts'
import { LineWriter } from './line-writer.ts'
import type { RecordingFile } from './recording-file.ts'

/** Writes a line for each call, and for the session's beginning and end. */
export function recorded(session: Session, file: RecordingFile): Session {
  const writer = new LineWriter(file)
  const connection = file.connections + 1
  let stream = -1
  writer.connection(connection, 'open')
  return {
    close: () => {
      writer.connection(connection, 'close')
      session.close()
    },
    closed: session.closed,
    call: async (service, method, payload, options = {}) => {
      stream += 2
      const { metadata = {}, timeoutMs = 0 } = options
      const answered = writer.call({ connection, stream, service, method, timeoutMs, metadata, payload })
      try {
        const answer = await session.call(service, method, payload, options)
        answered({ code: StatusCode.OK, message: '', payload: answer })
        return answer
      } catch (error) {
        const isAnswer = error instanceof AgentError
        answered(
          isAnswer ? { code: StatusCode[error.code], message: error.message, payload: undefined } : undefined,
        )
        throw error
      }
    },
  }
}
