import type { ProcessRequest } from '../../../client/container/container-spec.ts'
import { parseUser, type UserWord } from '../../../client/container/container-user.ts'
import { UsageError, type Values } from '../../command.ts'

export interface ProcessOptions extends Omit<ProcessRequest, 'terminal' | 'user'> {
  readonly user: UserWord
  readonly interactive: boolean
  readonly tty: boolean
}

export function processOptions(values: Values, args: readonly string[]): ProcessOptions {
  const env = values.texts('env')
  const wrong = env.find((entry) => !/^[^=]+=/.test(entry))
  if (wrong !== undefined) throw new UsageError(`--env ${wrong}: want NAME=VALUE`)
  const cwd = values.text('workdir') ?? '/'
  if (!cwd.startsWith('/')) throw new UsageError(`--workdir ${cwd}: want an absolute path`)
  const user = values.parsed('user', '0:0', parseUser)
  return { args, env, cwd, user, interactive: values.flag('interactive'), tty: values.flag('tty') }
}
