import { SHELLS } from '../../../client/completion.mjs'
import type { Command } from '../../command.ts'

/** What shells' completions ask of `agent-ctl completion`: one word a line. */
const ASKED = ['containers', 'machines'] as const

export const toolCommands: readonly Command[] = [
  {
    name: 'shell',
    group: 'tool',
    summary: 'read command lines of agent-ctl, with history and completion, on one connection',
    details: [
      'Words are split as a shell does. Ctrl-C ends the command that runs, exit or Ctrl-D the shell. The history is in ~/.agent_ctl_history, which only its owner may read.',
    ],
    examples: [['shell', 'type ps, events -f, or the name of any call']],
    load: () => import('./shell.ts'),
  },
  {
    name: 'help',
    group: 'tool',
    summary: 'show the help of a command or a call',
    arguments: [
      {
        name: 'COMMAND',
        summary: 'a command or a call',
        optional: true,
        repeated: true,
        completes: 'command',
      },
    ],
    examples: [['help exec', 'show the options of exec']],
    load: () => import('./help.ts'),
  },
  {
    name: 'completion',
    group: 'tool',
    summary: 'print the completion of a shell',
    details: [
      'It knows commands, options and calls, and asks for machines and containers when they are to be completed.',
    ],
    arguments: [
      {
        name: 'SHELL',
        summary: `${SHELLS.join(', ')}; or what their completions ask for: ${ASKED.join(', ')}`,
        choices: [...SHELLS, ...ASKED],
      },
    ],
    examples: [
      ['completion bash > /etc/bash_completion.d/agent-ctl', 'install it for bash'],
      ['completion machines', 'list the runs of ./microvm'],
    ],
    load: () => import('./completion.ts'),
  },
  {
    name: 'man',
    group: 'tool',
    summary: 'print the man page',
    examples: [['man | man -l -', 'read it']],
    load: () => import('./man.ts'),
  },
]
