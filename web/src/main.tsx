// Where the page starts. Read next: shell/app.tsx.
import { render } from 'preact';
import { App } from './shell/app';
import './style/base.css';
import './style/shell.css';
import './style/chat.css';
import './style/markdown.css';
import './style/live.css';

render(<App />, document.getElementById('app')!);
