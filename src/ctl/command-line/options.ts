import { ADDRESS_FORMS } from '../../client/connection/address.ts'
import type { Option } from '../command.ts'

/** Options that stand before or after any command. */
export const GLOBAL_OPTIONS: readonly Option[] = [
  {
    name: 'address',
    short: 'a',
    alias: 'server-address',
    value: 'ADDRESS',
    summary: `the agent: microvm://NAME (a run of ./microvm, or an instance of its daemon), ${ADDRESS_FORMS}; also AGENT_CTL_ADDRESS; default: the one machine that runs`,
    completes: 'machine',
  },
  {
    name: 'protocol',
    value: 'PROTOCOL',
    choices: ['ttrpc', 'grpc'],
    summary: 'how calls are framed (default ttrpc)',
  },
  {
    name: 'wait',
    value: 'SECONDS',
    kind: 'optional',
    accepts: /^\d+(\.\d+)?$/,
    summary: 'retry until the agent answers, 60 s or as given',
  },
  {
    name: 'reconnect',
    value: 'SECONDS',
    summary:
      'how long to dial again when the connection is lost; calls under way are repeated (default 10; 0: not)',
  },
  { name: 'timeout', value: 'TIME', summary: 'limit of each call, such as 500ms, 5s or 2m' },
  {
    name: 'output',
    short: 'o',
    value: 'FORMAT',
    choices: ['text', 'json'],
    summary: 'text for people (default), or json for programs',
  },
  {
    name: 'color',
    value: 'WHEN',
    choices: ['auto', 'always', 'never'],
    summary: 'colours: on a terminal only (auto, default), always, or never; NO_COLOR turns them off',
  },
  {
    name: 'record',
    value: 'FILE',
    completes: 'file',
    summary: 'write every call and its answer at the end of FILE, in the form of `record`',
  },
  {
    name: 'log-level',
    short: 'l',
    value: 'LEVEL',
    summary: "of the reference's command lines; it sets nothing, because agent-ctl writes no log",
  },
  { name: 'help', short: 'h', summary: 'show the help of the command' },
]
